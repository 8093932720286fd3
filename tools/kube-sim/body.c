/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

/* The body of a request: JSON, and its checks before any other. */

bool sim_body_is(const struct call *c, const char *type)
{
    struct span rest = span_of(c->req->content_type);
    struct span given = span_trim(span_cut(&rest, ';'));
    if (!given.n)
        given = SPAN("application/json");
    return span_eq_nocase(given, span_of(type));
}

/* A custom resource: the error of the schema validation. */
static int refuse_by_schema(struct call *c, const json_t *object,
                            const struct shape_fault *wrong)
{
    cleanup_faultlist struct faultlist f = {0};
    sim_fault(&f, "FieldValueTypeInvalid", wrong->where,
              "Invalid value: \"%s\": %s in body must be of type %s: \"%s\"",
              wrong->given, wrong->where, wrong->wanted, wrong->given);
    return sim_refuse_invalid(c, sim_jsonx_span(object, "metadata.name"), &f);
}

static int refuse_types(struct call *c, const char *kind, const struct shape_fault *wrong)
{
    return sim_refuse(c, 400, "%s in version \"v1\" cannot be handled as a %s: %s", kind,
                      kind, wrong->err.msg);
}

int sim_body_check(struct call *c, json_t *object, bool patched)
{
    struct shape_fault wrong;
    const struct kind *kind = c->route.kind;
    if (sim_shape_check(kind->shape, object, &wrong) == 0)
        return 0;
    if (kind->custom)
        return refuse_by_schema(c, object, &wrong);
    return patched ? sim_refuse_patch(c, object, wrong.err.msg)
                   : refuse_types(c, kind->kind, &wrong);
}

static int check_type(struct call *c, const json_t *object)
{
    const struct kind *kind = c->route.kind;
    cleanup_buf struct buf version = {0};
    sim_kind_add_group_version(kind, &version);
    struct span given = sim_jsonx_span(object, "apiVersion"),
                type = sim_jsonx_span(object, "kind");
    if (kind->custom && !type.n) /* a custom resource must name its apiVersion and kind */
        return sim_refuse(c, 400,
                          "the object provided is unrecognized (must be of type %s): "
                          "Object 'Kind' is missing in '%.*s'",
                          kind->kind, SPAN_ARG(c->req->body));
    if (given.n && !span_eq(given, buf_span(&version)))
        return sim_refuse(
            c, 400,
            "the API version in the data (%.*s) does not match the expected API "
            "version (%s)",
            SPAN_ARG(given), version.p);
    if (type.n && !span_eq(type, span_of(kind->kind)))
        return sim_refuse(
            c, 400, "the kind in the data (%.*s) does not match the expected kind (%s)",
            SPAN_ARG(type), kind->kind);
    return 0;
}

/* The body as an object without nulls. New; NULL: the request has been refused. */
static json_t *read_body(struct call *c, const char *kind)
{
    struct err err = {0};
    if (!sim_body_is(c, "application/json")) {
        sim_refuse(
            c, 415,
            "the body of the request was in an unknown format - accepted media types "
            "include: application/json");
        return NULL;
    }
    cleanup_json_value json_t *object = sim_jsonx_parse(c->req->body, &err);
    if (!json_is_object(object)) {
        sim_refuse(c, 400, "the object provided is unrecognized (must be of type %s): %s",
                   kind, object ? "no JSON object" : err.msg);
        return NULL;
    }
    sim_jsonx_strip_nulls(object);
    if (!json_object_get(object, "metadata"))
        json_object_set_new(object, "metadata", json_object());
    return json_incref(object);
}

json_t *sim_body_of(struct call *c, const char *kind, const char *shape)
{
    struct shape_fault wrong;
    cleanup_json_value json_t *object = read_body(c, kind);
    if (!object)
        return NULL;
    if (sim_shape_check(shape, object, &wrong) == 0)
        return json_incref(object);
    refuse_types(c, kind, &wrong);
    return NULL;
}

json_t *sim_body_object(struct call *c)
{
    cleanup_json_value json_t *object = read_body(c, c->route.kind->kind);
    if (!object || check_type(c, object) || sim_body_check(c, object, false))
        return NULL;
    return json_incref(object);
}
