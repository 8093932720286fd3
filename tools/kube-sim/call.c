/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/call_priv.h"

static void fail(struct call *c, unsigned code, const char *reason, const char *message,
                 const struct status_about *about)
{
    buf_clear(&c->reply->body);
    c->reply->status = code;
    c->reply->content_type = NULL;
    sim_status_write(&c->reply->body, code, reason, message, about);
}

int sim_refuse(struct call *c, unsigned code, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    static const struct status_about nothing;
    bool about = code >= 404 && code <= 406; /* these have empty details */
    fail(c, code, sim_status_reason(code), text.p, about ? &nothing : NULL);
    return -1;
}

int sim_refuse_unknown(struct call *c, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    fail(c, 500, NULL, text.p, NULL);
    return -1;
}

int sim_refuse_about(struct call *c, unsigned code, const char *reason, struct span name,
                     const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    struct status_about about = {
        .group = c->route.kind->group, .kind = c->route.kind->plural, .name = name};
    fail(c, code, reason, text.p, &about);
    return -1;
}

int sim_refuse_not_found(struct call *c, const struct kind *kind, struct span name)
{
    cleanup_buf struct buf text = {0};
    sim_kind_add_resource(kind, &text);
    buf_printf(&text, " \"%.*s\" not found", SPAN_ARG(name));
    struct status_about about = {
        .group = kind->group, .kind = kind->plural, .name = name};
    fail(c, 404, "NotFound", text.p, &about);
    return -1;
}

static int refuse_conflict(struct call *c, const char *why)
{
    cleanup_buf struct buf resource = {0};
    sim_kind_add_resource(c->route.kind, &resource);
    return sim_refuse_about(c, 409, "Conflict", c->route.name,
                            "Operation cannot be fulfilled on %s \"%.*s\": %s",
                            resource.p, SPAN_ARG(c->route.name), why);
}

int sim_refuse_modified(struct call *c)
{
    return refuse_conflict(c,
                           "the object has been modified; please apply your changes to "
                           "the latest version and try again");
}

int sim_refuse_precondition(struct call *c, const char *what, const char *wanted,
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
        "precondition: %s, %s in object meta: %.*s",
        SPAN_ARG(c->route.name), what, wanted, what, SPAN_ARG(found));
    return refuse_conflict(c, why.p);
}

/* In errors of a deletion a real server writes the kind, in others the resource. */
int sim_refuse_deletion(struct call *c, const char *what, const char *wanted,
                        struct span found)
{
    const struct kind *kind = c->route.kind;
    bool uid = strcmp(what, "UID") == 0;
    cleanup_buf struct buf text = {0};
    buf_printf(&text,
               "Operation cannot be fulfilled on %s%s%s \"%.*s\": the %s in the "
               "precondition (%s) does not match the %s in record (%.*s). The object "
               "might have been %s",
               kind->kind, kind->group[0] ? "." : "", kind->group,
               SPAN_ARG(c->route.name), what, wanted, what, SPAN_ARG(found),
               uid ? "deleted and then recreated" : "modified");
    struct status_about about = {
        .group = kind->group, .kind = kind->kind, .name = c->route.name};
    fail(c, 409, "Conflict", text.p, &about);
    return -1;
}

static int refuse_faults(struct call *c, const char *group, const char *kind,
                         struct span name, const struct faultlist *f)
{
    cleanup_buf struct buf text = {0};
    sim_faultlist_message(f, &text, group, kind, name);
    struct status_about about = {
        .group = group, .kind = kind, .name = name, .causes = f->causes};
    fail(c, 422, "Invalid", text.p, &about);
    return -1;
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
    sim_fault_number(&f, "metadata.resourceVersion", 0,
                     "must be specified for an update");
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

int sim_refuse_options(struct call *c, const struct faultlist *f)
{
    return refuse_faults(c, "meta.k8s.io", "ListOptions", SPAN(""), f);
}

int sim_refuse_option(struct call *c, const char *field, const char *why)
{
    cleanup_faultlist struct faultlist f = {0};
    sim_fault_forbidden(&f, field, why);
    return sim_refuse_options(c, &f);
}

void sim_answer_object(struct call *c, unsigned code, const struct object *o)
{
    c->reply->status = code;
    buf_reserve(&c->reply->body, o->bytes.n + 1);
    buf_add_span(&c->reply->body, o->bytes);
    buf_addc(&c->reply->body, '\n');
}
