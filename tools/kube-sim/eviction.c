/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/change_priv.h"
#include "kube-sim/pod_priv.h"
#include "kube-sim/shape_priv.h"
#include "kube-sim/write_priv.h"

/*
 * Evicts a pod: sets the condition DisruptionTarget and deletes it gracefully. There are no
 * PodDisruptionBudgets here, so none refuses an eviction.
 */

static json_t *read_eviction(struct call *c)
{
    struct err err;
    cleanup_json json_t *e = sim_jsonx_parse(c->req->body, &err);
    if (!json_is_object(e)) {
        sim_refuse(c, 400, "couldn't get version/kind; json parse error: %s",
                   e ? "no JSON object" : err.msg);
        return NULL;
    }
    sim_jsonx_strip_nulls(e);
    sim_jsonx_make(e, "metadata");
    if (sim_shape_check(sim_shape_meta, e, &err) ||
        sim_shape_check(sim_shape_eviction, e, &err)) {
        sim_refuse(c, 400,
                   "Eviction in version \"v1\" cannot be handled as a Eviction: %s",
                   err.msg);
        return NULL;
    }
    if (!span_eq(sim_jsonx_span(e, "metadata.name"), c->route.name)) {
        sim_refuse(c, 400, "name in URL does not match name in Eviction object");
        return NULL;
    }
    return json_incref(e);
}

static const struct object *mark(struct call *c, const struct object *o)
{
    cleanup_json json_t *pod = sim_object_parse(o);
    sim_pod_set_condition(pod, "DisruptionTarget", "True", c->now_ms);
    json_t *all = sim_jsonx_at(pod, "status.conditions");
    json_t *last = json_array_get(all, json_array_size(all) - 1);
    sim_jsonx_set_str(last, "reason", "EvictionByEvictionAPI");
    sim_jsonx_set_str(last, "message", "Eviction API: evicting");
    return sim_change_put(c->api, c->route.kind, pod);
}

void sim_eviction_handle(struct call *c)
{
    cleanup_buf struct buf key = {0};
    cleanup_json json_t *e = read_eviction(c);
    if (!e)
        return;
    const json_t *options = sim_jsonx_at(e, "deleteOptions");
    const struct object *o = sim_store_find(
        c->store, sim_kind_key(c->route.kind, c->route.ns, c->route.name, &key));
    if (!o) {
        sim_refuse_not_found(c, c->route.kind, c->route.name);
        return;
    }
    if (sim_delete_check(c, options, o))
        return;
    c->dry_run |= json_array_size(sim_jsonx_at(options, "dryRun")) > 0;
    if (!c->dry_run) {
        o = o->deleting ? o : mark(c, o);
        sim_delete_pod(c, o, sim_jsonx_int(options, "gracePeriodSeconds", -1));
    }
    c->reply->status = 201;
    sim_status_write_success(&c->reply->body, 201, NULL);
}
