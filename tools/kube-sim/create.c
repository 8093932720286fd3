/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "kube-sim/sim.h"

/* POST of an object. */

/* Appends a version 4 UUID. */
static void add_uuid(struct rng *rng, struct buf *out)
{
    uint64_t a = rng_next(rng), b = rng_next(rng);
    buf_printf(out, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32),
               (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff),
               (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
               (unsigned long long)(b & 0xffffffffffff));
}

static int set_namespace(struct call *c, json_t *meta)
{
    struct span given = sim_jsonx_span(meta, "namespace");
    if (!c->route.kind->namespaced) {
        json_object_del(meta, "namespace");
        return 0;
    }
    if (given.n && !span_eq(given, c->route.ns))
        return sim_refuse_namespace(c);
    json_object_set_new(meta, "namespace", json_stringn(c->route.ns.p, c->route.ns.n));
    return 0;
}

static void set_system_fields(struct call *c, json_t *meta, bool keep)
{
    cleanup_buf struct buf text = {0};
    if (!keep || !sim_jsonx_span(meta, "uid").n) {
        add_uuid(&c->api->rng, &text);
        json_object_set_new(meta, "uid", json_stringn(text.p, text.n));
        buf_clear(&text);
    }
    if (!keep || !sim_jsonx_span(meta, "creationTimestamp").n) {
        clock_format_s(&text, c->now_ms / 1000);
        json_object_set_new(meta, "creationTimestamp", json_stringn(text.p, text.n));
    }
    if (!keep) {
        json_object_del(meta, "deletionTimestamp");
        json_object_del(meta, "deletionGracePeriodSeconds");
    }
}

static int check_namespace_exists(struct call *c)
{
    struct store *namespaces = &c->api->stores[0]; /* the first kind */
    if (!c->route.kind->namespaced || sim_store_find(namespaces, c->route.ns))
        return 0;
    return sim_refuse_not_found(c, namespaces->kind, c->route.ns);
}

int sim_create_prepare(struct call *c, json_t *object, bool keep)
{
    json_t *meta = json_object_get(object, "metadata");
    if ((!keep && check_namespace_exists(c)) || set_namespace(c, meta))
        return -1;
    if (!keep && c->route.kind->binding)
        json_object_del(object, "status"); /* set through the status subresource only */
    if (c->route.kind->fill)
        c->route.kind->fill(object);
    if (!keep && c->route.kind->binding)
        sim_pod_gate(object, c->now_ms);
    set_system_fields(c, meta, keep);
    cleanup_faultlist struct faultlist f = {0};
    sim_meta_check(c->route.kind, object, &f);
    if (c->route.kind->check)
        c->route.kind->check(object, NULL, &f);
    return f.n ? sim_refuse_invalid(c, sim_jsonx_span(meta, "name"), &f) : 0;
}

void sim_create_handle(struct call *c)
{
    cleanup_json_value json_t *object = sim_body_object(c);
    if (!object)
        return;
    if (sim_jsonx_span(object, "metadata.resourceVersion").n) {
        sim_refuse_unknown(c,
                           "resourceVersion should not be set on objects to be created");
        return;
    }
    if (sim_create_prepare(c, object, false))
        return;
    struct span name = sim_jsonx_span(object, "metadata.name");
    cleanup_buf struct buf key = {0}, resource = {0};
    if (!sim_store_find(c->store, sim_kind_key(c->route.kind, c->route.ns, name, &key))) {
        sim_answer_object(c, 201, sim_change_put(c->api, c->route.kind, object));
        return;
    }
    sim_kind_add_resource(c->route.kind, &resource);
    sim_refuse_with(c, 409, "AlreadyExists", SIM_ABOUT(c->route.kind, name),
                    "%s \"%.*s\" already exists", resource.p, SPAN_ARG(name));
}
