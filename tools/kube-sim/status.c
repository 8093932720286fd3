/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

/* Errors: the Status object, and the list of invalid fields in it. */

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

void sim_fault(struct faultlist *f, const char *reason, const char *field,
               const char *message, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, message);
    buf_vprintf(&text, message, ap);
    va_end(ap);
    if (!f->causes)
        f->causes = json_array();
    json_array_append_new(f->causes,
                          json_pack("{s:s,s:s%,s:s}", "reason", reason, "message", text.p,
                                    text.n, "field", field));
    buf_printf(&f->text, "%s%s: %s", f->n++ ? ", " : "", field, text.p);
}

void sim_fault_invalid(struct faultlist *f, const char *field, struct span value,
                       const char *detail)
{
    enum { SHOWN = 256 };
    cleanup_buf struct buf text = {0};
    buf_add_json(&text, (struct span){value.p, value.n < SHOWN ? value.n : SHOWN});
    sim_fault(f, "FieldValueInvalid", field, "Invalid value: %s: %s", text.p, detail);
}

void sim_fault_required(struct faultlist *f, const char *field, const char *detail)
{
    sim_fault(f, "FieldValueRequired", field, "Required value%s%s", detail[0] ? ": " : "",
              detail);
}

void sim_fault_forbidden(struct faultlist *f, const char *field, const char *detail)
{
    sim_fault(f, "FieldValueForbidden", field, "Forbidden: %s", detail);
}

void sim_fault_too_long(struct faultlist *f, const char *field, size_t limit)
{
    sim_fault(f, "FieldValueTooLong", field, "Too long: may not be more than %zu bytes",
              limit);
}

int sim_refuse_with(struct call *c, unsigned code, const char *reason,
                    const struct status_about *about, const char *fmt, ...)
{
    static const struct status_about nothing;
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    if (!reason && code >= 404 && code <= 406) /* these have empty details */
        about = &nothing;
    buf_clear(&c->reply->body);
    c->reply->status = code;
    c->reply->content_type = NULL;
    sim_status_write(&c->reply->body, code, reason ? reason : sim_status_reason(code),
                     text.p, about);
    return -1;
}

int sim_refuse_not_found(struct call *c, const struct kind *kind, struct span name)
{
    cleanup_buf struct buf resource = {0};
    sim_kind_add_resource(kind, &resource);
    return sim_refuse_with(c, 404, "NotFound", SIM_ABOUT(kind, name),
                           "%s \"%.*s\" not found", resource.p, SPAN_ARG(name));
}

static int refuse_conflict(struct call *c, const char *why)
{
    cleanup_buf struct buf resource = {0};
    sim_kind_add_resource(c->route.kind, &resource);
    return sim_refuse_with(c, 409, "Conflict", SIM_ABOUT(c->route.kind, c->route.name),
                           "Operation cannot be fulfilled on %s \"%.*s\": %s", resource.p,
                           SPAN_ARG(c->route.name), why);
}

int sim_refuse_modified(struct call *c)
{
    return refuse_conflict(c,
                           "the object has been modified; please apply your changes to "
                           "the latest version and try again");
}

int sim_refuse_namespace(struct call *c)
{
    return sim_refuse(c, 400,
                      "the namespace of the provided object does not match the namespace "
                      "sent on the request");
}

int sim_refuse_precondition(struct call *c, const char *what, struct span wanted,
                            struct span found)
{
    cleanup_buf struct buf why = {0};
    buf_adds(&why, "StorageError: invalid object, Code: 4, Key: /registry/");
    if (c->route.kind->group[0] && c->route.kind->custom)
        buf_printf(&why, "%s/", c->route.kind->group);
    buf_adds(&why, c->route.kind->plural);
    if (c->route.ns.p)
        buf_printf(&why, "/%.*s", SPAN_ARG(c->route.ns));
    buf_printf(
        &why,
        "/%.*s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: %s in "
        "precondition: %.*s, %s in object meta: %.*s",
        SPAN_ARG(c->route.name), what, SPAN_ARG(wanted), what, SPAN_ARG(found));
    return refuse_conflict(c, why.p);
}

/* In errors of a deletion a real server writes the kind, in others the resource. */
static int refuse_deletion(struct call *c, const char *what, struct span wanted,
                           struct span found)
{
    const struct kind *kind = c->route.kind;
    struct status_about about = {
        .group = kind->group, .kind = kind->kind, .name = c->route.name};
    return sim_refuse_with(
        c, 409, "Conflict", &about,
        "Operation cannot be fulfilled on %s%s%s \"%.*s\": the %s in the "
        "precondition (%.*s) does not match the %s in record (%.*s). The object "
        "might have been %s",
        kind->kind, kind->group[0] ? "." : "", kind->group, SPAN_ARG(c->route.name), what,
        SPAN_ARG(wanted), what, SPAN_ARG(found),
        what[0] == 'U' ? "deleted and then recreated" : "modified");
}

int sim_check_preconditions(struct call *c, const json_t *wanted, const struct object *o,
                            bool deletion)
{
    int (*refuse)(struct call *, const char *, struct span, struct span) =
        deletion ? refuse_deletion : sim_refuse_precondition;
    struct span uid = sim_jsonx_span(wanted, "uid"),
                version = sim_jsonx_span(wanted, "resourceVersion");
    cleanup_buf struct buf rv = {0};
    buf_add_i64(&rv, (int64_t)o->rv);
    if (uid.n && !span_eq(uid, o->uid))
        return refuse(c, "UID", uid, o->uid);
    if (version.n && !span_eq(version, buf_span(&rv)))
        return refuse(c, "ResourceVersion", version, buf_span(&rv));
    return 0;
}

/* `Pod "p" is invalid: ...` */
static int refuse_faults(struct call *c, const char *group, const char *kind,
                         struct span name, const struct faultlist *f)
{
    struct status_about about = {
        .group = group, .kind = kind, .name = name, .causes = f->causes};
    return sim_refuse_with(c, 422, "Invalid", &about,
                           "%s%s%s \"%.*s\" is invalid: %s%s%s", kind,
                           group[0] ? "." : "", group, SPAN_ARG(name),
                           f->n > 1 ? "[" : "", f->text.p, f->n > 1 ? "]" : "");
}

int sim_refuse_invalid(struct call *c, struct span name, const struct faultlist *f)
{
    const struct kind *kind = c->route.kind;
    return refuse_faults(c, kind->core_faults ? "" : kind->group, kind->kind, name, f);
}

int sim_refuse_no_version(struct call *c)
{
    const struct kind *kind = c->route.kind;
    cleanup_faultlist struct faultlist f = {0};
    sim_fault(&f, "FieldValueInvalid", "metadata.resourceVersion",
              "Invalid value: 0: must be specified for an update");
    return refuse_faults(c, kind->group, kind->plural, c->route.name, &f);
}

int sim_refuse_patch(struct call *c, const json_t *object, const char *why)
{
    cleanup_faultlist struct faultlist f = {0};
    cleanup_buf struct buf value = {0};
    sim_jsonx_dump(&value, object);
    sim_fault_invalid(&f, "patch", buf_span(&value), why);
    return refuse_faults(c, "", "", SPAN(""), &f);
}

void sim_answer_object(struct call *c, unsigned code, const struct object *o)
{
    c->reply->status = code;
    buf_reserve(&c->reply->body, o->bytes.n + 1);
    buf_add_span(&c->reply->body, o->bytes);
    buf_addc(&c->reply->body, '\n');
}
