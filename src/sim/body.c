/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/proto_priv.h"
#include "sim/shape_priv.h"
#include "sim/write_priv.h"

bool sim_body_is(const struct call *c, const char *type)
{
    struct span rest = span_of(c->req->content_type);
    struct span given = span_trim(span_cut(&rest, ';'));
    if (!given.n)
        given = SPAN("application/json");
    return span_eq_nocase(given, span_of(type));
}

static int refuse_shape(struct call *c, const json_t *object, const char *why)
{
    const struct kind *kind = c->route.kind;
    if (!kind->custom)
        return sim_refuse(c, 400, "%s in version \"%s\" cannot be handled as a %s: %s",
                          kind->kind, kind->version, kind->kind, why);
    cleanup_faultlist struct faultlist f = {0};
    sim_fault_invalid(&f, "<root>", SPAN(""),
                      why); /* custom resources: by their schema */
    return sim_refuse_invalid(c, sim_jsonx_span(object, "metadata.name"), &f);
}

int sim_body_check(struct call *c, json_t *object)
{
    struct err err;
    if (sim_shape_check(sim_shape_meta, object, &err) ||
        sim_shape_check(c->route.kind->shape, object, &err))
        return refuse_shape(c, object, err.msg);
    return 0;
}

static int check_type(struct call *c, const json_t *object)
{
    const struct kind *kind = c->route.kind;
    cleanup_buf struct buf version = {0};
    sim_kind_add_group_version(kind, &version);
    struct span given = sim_jsonx_span(object, "apiVersion"),
                type = sim_jsonx_span(object, "kind");
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

/* The body as a tree, whatever it holds. New; NULL when refused. */
static json_t *read_body(struct call *c)
{
    struct err err;
    json_t *object = NULL;
    const struct proto_field *message = c->route.kind->message;
    if (sim_body_is(c, "application/json")) {
        object = sim_jsonx_parse(c->req->body, &err);
    } else if (message && sim_body_is(c, "application/vnd.kubernetes.protobuf")) {
        object = sim_proto_parse(message, c->req->body, &err);
    } else {
        sim_refuse(
            c, 415,
            "the body of the request was in an unknown format - accepted media types "
            "include: application/json");
        return NULL;
    }
    if (!object)
        sim_refuse(c, 400, "the object provided is unrecognized (must be of type %s): %s",
                   c->route.kind->kind, err.msg);
    return object;
}

json_t *sim_body_object(struct call *c)
{
    cleanup_json json_t *object = read_body(c);
    if (!object)
        return NULL;
    if (!json_is_object(object)) {
        sim_refuse(c, 400, "the object provided is unrecognized (must be of type %s)",
                   c->route.kind->kind);
        return NULL;
    }
    sim_jsonx_strip_nulls(object);
    if (!json_object_get(object, "metadata"))
        json_object_set_new(object, "metadata", json_object());
    if (check_type(c, object) || sim_body_check(c, object))
        return NULL;
    return json_incref(object);
}
