/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

/* PUT and PATCH: both build a new tree from the old one, validate it and store it. */

static bool is_status(const struct call *c)
{
    return c->route.sub.p;
}

/* The names in the body must match the URL. */
static int check_names(struct call *c, const json_t *object)
{
    struct span name = sim_jsonx_span(object, "metadata.name");
    struct span ns = sim_jsonx_span(object, "metadata.namespace");
    if (!name.n)
        return sim_refuse(
            c, 400,
            "the name of the object (%.*s based on URL) was undeterminable: name "
            "must be provided",
            SPAN_ARG(c->route.name));
    if (!span_eq(name, c->route.name))
        return sim_refuse(
            c, 400,
            "the name of the object (%.*s) does not match the name on the URL "
            "(%.*s)",
            SPAN_ARG(name), SPAN_ARG(c->route.name));
    if (ns.n && !span_eq(ns, c->route.ns))
        return sim_refuse_namespace(c);
    return 0;
}

static void keep_member(json_t *object, const json_t *old, const char *key)
{
    json_t *v = json_object_get(old, key);
    if (v)
        json_object_set(object, key, v);
    else
        json_object_del(object, key);
}

/* Restores what this update may not write: an update of the status subresource writes
 * status and metadata; any other update keeps the status. */
static void keep_unwritable(struct call *c, json_t *object, const json_t *old)
{
    if (!c->route.kind->status)
        return;
    if (!is_status(c)) {
        keep_member(object, old, "status");
        return;
    }
    cleanup_json_value json_t *given = json_copy(object);
    json_object_clear(object);
    json_object_update(object, (json_t *)old);
    keep_member(object, given, "status");
    keep_member(object, given, "metadata");
    keep_member(json_object_get(object, "metadata"), json_object_get(old, "metadata"),
                "ownerReferences");
}

static int check_version(struct call *c, const json_t *object, const struct object *o)
{
    struct span wanted = sim_jsonx_span(object, "metadata.resourceVersion");
    int64_t rv;
    if (!wanted.n)
        return 0;
    if (!span_i64(wanted, &rv))
        return sim_refuse_unknown(
            c, "strconv.ParseUint: parsing \"%.*s\": invalid syntax", SPAN_ARG(wanted));
    return (uint64_t)rv == o->rv ? 0 : sim_refuse_modified(c);
}

/* Validates the new tree against the old one, and stores it if it has changed. */
static void replace(struct call *c, json_t *object, const json_t *old, struct object *o)
{
    const struct kind *kind = c->route.kind;
    if (check_version(c, object, o))
        return;
    cleanup_faultlist struct faultlist f = {0};
    keep_member(object, old, "kind");
    keep_member(object, old, "apiVersion");
    if (kind->fill && !is_status(c))
        kind->fill(object);
    keep_unwritable(c, object, old);
    sim_meta_carry_over(object, old, &f);
    sim_meta_check(kind, object, &f);
    if (kind->check)
        kind->check(object, old, &f);
    if (f.n) {
        sim_refuse_invalid(c, c->route.name, &f);
        return;
    }
    keep_member(json_object_get(object, "metadata"), json_object_get(old, "metadata"),
                "resourceVersion");
    sim_answer_object(
        c, 200,
        json_equal(object, (json_t *)old) ? o : sim_change_put(c->api, kind, object));
}

/* -- PUT -- */

static int check_put(struct call *c, const json_t *object, const struct object *o)
{
    struct span uid = sim_jsonx_span(object, "metadata.uid");
    if (uid.n && !span_eq(uid, o->uid))
        return sim_refuse_precondition(c, "UID", uid, o->uid);
    if (sim_jsonx_span(object, "metadata.resourceVersion").n || !c->route.kind->versioned)
        return 0;
    return sim_refuse_no_version(c);
}

static void put(struct call *c)
{
    cleanup_json_value json_t *object = sim_body_object(c);
    if (!object || check_names(c, object))
        return;
    struct object *o = sim_call_object(c);
    if (!o || check_put(c, object, o))
        return;
    cleanup_json_value json_t *old = sim_object_parse(o);
    replace(c, object, old, o);
}

/* -- PATCH -- */

/* RFC 7386. */
static void merge(json_t *target, const json_t *patch)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)patch, key, v)
    {
        if (json_is_null(v))
            json_object_del(target, key);
        else if (json_is_object(v))
            merge(sim_jsonx_make(target, key), v);
        else
            json_object_set_new(target, key, json_deep_copy(v));
    }
}

/* The old tree with the patch applied. New; NULL: the request has been refused. */
static json_t *patched(struct call *c, const json_t *old)
{
    struct err err;
    cleanup_json_value json_t *patch = sim_jsonx_parse(c->req->body, &err);
    if (!json_is_object(patch)) {
        sim_refuse(c, 400, "error decoding patch: %s",
                   patch ? "no JSON object" : err.msg);
        return NULL;
    }
    cleanup_json_value json_t *object = json_deep_copy(old);
    merge(object, patch);
    if (!json_is_string(json_object_get(object, "kind")))
        json_object_del(object,
                        "metadata"); /* without kind, a real server drops the metadata */
    sim_jsonx_strip_nulls(object);
    if (!json_is_object(json_object_get(object, "metadata")))
        json_object_set_new(object, "metadata", json_object());
    if (sim_body_check(c, object, true))
        return NULL;
    return json_incref(object);
}

static void patch(struct call *c)
{
    static const char type[] = "application/merge-patch+json";
    if (!sim_body_is(c, type)) {
        sim_refuse(c, 415,
                   "the body of the request was in an unknown format - accepted media "
                   "types include: %s",
                   type);
        return;
    }
    struct object *o = sim_call_object(c);
    if (!o)
        return;
    cleanup_json_value json_t *old = sim_object_parse(o);
    cleanup_json_value json_t *object = patched(c, old);
    if (!object || check_names(c, object))
        return;
    replace(c, object, old, o);
}

void sim_update_handle(struct call *c)
{
    if (strcmp(c->req->method, "PUT") == 0)
        put(c);
    else
        patch(c);
}
