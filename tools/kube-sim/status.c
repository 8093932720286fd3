/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/status_priv.h"

static void add_member(struct buf *out, const char *key, struct span value)
{
    buf_printf(out, ",\"%s\":", key);
    buf_add_json(out, value);
}

static void add_details(struct buf *out, const struct status_about *about)
{
    if (!about)
        return;
    buf_adds(out, ",\"details\":{");
    size_t start = out->n;
    if (about->name.n)
        add_member(out, "name", about->name);
    if (about->group && about->group[0])
        add_member(out, "group", span_of(about->group));
    if (about->kind && about->kind[0])
        add_member(out, "kind", span_of(about->kind));
    if (about->uid)
        add_member(out, "uid", span_of(about->uid));
    if (about->causes) {
        buf_adds(out, ",\"causes\":");
        sim_jsonx_dump(out, about->causes);
    }
    if (about->retry_s > 0)
        buf_printf(out, ",\"retryAfterSeconds\":%lld", (long long)about->retry_s);
    if (out->n > start) { /* without the first comma */
        memmove(out->p + start, out->p + start + 1, out->n - start);
        out->n--;
    }
    buf_addc(out, '}');
}

void sim_status_write(struct buf *out, unsigned code, const char *reason,
                      const char *message, const struct status_about *about)
{
    buf_adds(out, "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},"
                  "\"status\":\"Failure\"");
    add_member(out, "message", span_of(message));
    if (reason && reason[0])
        add_member(out, "reason", span_of(reason));
    add_details(out, about);
    buf_printf(out, ",\"code\":%u}\n", code);
}

void sim_status_write_timeout(struct buf *out)
{
    buf_adds(out,
             "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request "
             "did not complete within the allotted timeout\",\"reason\":\"Timeout\","
             "\"details\":{},\"code\":504}\n");
}

void sim_status_write_success(struct buf *out, unsigned code,
                              const struct status_about *about)
{
    buf_adds(out, "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},"
                  "\"status\":\"Success\"");
    add_details(out, about);
    if (code != 200)
        buf_printf(out, ",\"code\":%u", code);
    buf_adds(out, "}\n");
}

const char *sim_status_reason(unsigned code)
{
    switch (code) {
    case 400:
        return "BadRequest";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "NotFound";
    case 405:
        return "MethodNotAllowed";
    case 406:
        return "NotAcceptable";
    case 409:
        return "Conflict";
    case 410:
        return "Expired";
    case 413:
        return "RequestEntityTooLarge";
    case 415:
        return "UnsupportedMediaType";
    case 422:
        return "Invalid";
    case 429:
        return "TooManyRequests";
    case 500:
        return "InternalError";
    case 503:
        return "ServiceUnavailable";
    case 504:
        return "Timeout";
    default:
        return "";
    }
}

void sim_faultlist_fini(struct faultlist *f)
{
    json_decref(f->causes);
    buf_fini(&f->text);
    *f = (struct faultlist){0};
}

/* Adds a cause with this message, and "FIELD: message" to the text of the Status. */
static void add(struct faultlist *f, const char *reason, const char *field,
                const struct buf *message)
{
    if (!f->causes)
        f->causes = json_array();
    json_array_append_new(f->causes,
                          json_pack("{s:s,s:s%,s:s}", "reason", reason, "message",
                                    message->p, message->n, "field", field));
    if (f->n++)
        buf_adds(&f->text, ", ");
    buf_printf(&f->text, "%s: ", field);
    buf_add(&f->text, message->p, message->n);
}

static void add_value(struct buf *out, const char *what, struct span value)
{
    enum { SHOWN = 256 };
    buf_adds(out, what);
    buf_adds(out, ": ");
    buf_add_json(out, (struct span){value.p, value.n < SHOWN ? value.n : SHOWN});
}

void sim_fault_invalid(struct faultlist *f, const char *field, struct span value,
                       const char *detail)
{
    cleanup_buf struct buf text = {0};
    add_value(&text, "Invalid value", value);
    buf_printf(&text, ": %s", detail);
    add(f, "FieldValueInvalid", field, &text);
}

void sim_fault_number(struct faultlist *f, const char *field, int64_t value,
                      const char *detail)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "Invalid value: %lld: %s", (long long)value, detail);
    add(f, "FieldValueInvalid", field, &text);
}

void sim_fault_type(struct faultlist *f, const char *field, const char *given,
                    const char *wanted)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "Invalid value: \"%s\": %s in body must be of type %s: \"%s\"",
               given, field, wanted, given);
    add(f, "FieldValueTypeInvalid", field, &text);
}

void sim_fault_required(struct faultlist *f, const char *field, const char *detail)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "Required value%s%s", detail[0] ? ": " : "", detail);
    add(f, "FieldValueRequired", field, &text);
}

void sim_fault_forbidden(struct faultlist *f, const char *field, const char *detail)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "Forbidden: %s", detail);
    add(f, "FieldValueForbidden", field, &text);
}

void sim_fault_unsupported(struct faultlist *f, const char *field, struct span value,
                           const char *supported)
{
    cleanup_buf struct buf text = {0};
    add_value(&text, "Unsupported value", value);
    buf_printf(&text, ": supported values: %s", supported);
    add(f, "FieldValueNotSupported", field, &text);
}

void sim_fault_duplicate(struct faultlist *f, const char *field, struct span value)
{
    cleanup_buf struct buf text = {0};
    add_value(&text, "Duplicate value", value);
    add(f, "FieldValueDuplicate", field, &text);
}

void sim_fault_too_long(struct faultlist *f, const char *field, int64_t limit)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "Too long: may not be more than %lld bytes", (long long)limit);
    add(f, "FieldValueTooLong", field, &text);
}

void sim_faultlist_message(const struct faultlist *f, struct buf *out, const char *group,
                           const char *kind, struct span name)
{
    buf_printf(out, "%s%s%s \"%.*s\" is invalid: ", kind, group[0] ? "." : "", group,
               SPAN_ARG(name));
    buf_adds(out, f->n > 1 ? "[" : "");
    buf_add_span(out, buf_span(&f->text));
    buf_adds(out, f->n > 1 ? "]" : "");
}
