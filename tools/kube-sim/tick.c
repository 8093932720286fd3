/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/agents_priv.h"
#include "kube-sim/change_priv.h"
#include "kube-sim/meta_priv.h"

enum { SWEEP_MS = 60 * 1000 };

/* Like the kubelet's final deletion with grace period 0. */
static void remove_pod(struct api *api, const struct object *o)
{
    cleanup_json json_t *root = sim_object_parse(o);
    sim_jsonx_set_int(json_object_get(root, "metadata"), "deletionGracePeriodSeconds", 0);
    const struct object *now = sim_change_put(api, o->kind, root);
    if (!sim_meta_has_finalizers(root))
        sim_change_remove(api, now);
}

static void run_timer(struct api *api, const struct timer *e, int64_t now_ms)
{
    const struct object *o =
        sim_store_find(sim_api_store(api, e->object->kind), e->object->key);
    if (!o || !span_eq(o->uid, e->object->uid))
        return;
    if (e->what == TIMER_RUN)
        sim_agents_run(api, o, now_ms);
    else if (o->deleting)
        remove_pod(api, o);
}

static void run_timers(struct api *api, int64_t now_ms)
{
    size_t kept = 0, n = api->n_timers; /* timers added meanwhile run at the next tick */
    for (size_t i = 0; i < n; i++) {
        struct timer e = api->timers[i];
        if (e.at_ms > now_ms) {
            api->timers[kept++] = e;
            continue;
        }
        run_timer(api, &e, now_ms);
        sim_object_unref(e.object);
    }
    memmove(api->timers + kept, api->timers + n,
            (api->n_timers - n) * sizeof *api->timers);
    api->n_timers -= n - kept;
}

/* Removes the objects that have not changed since a version. */
static void sweep(struct api *api, struct store *store, uint64_t before)
{
    for (size_t i = store->n; i-- > 0;)
        if (store->items[i]->rv <= before)
            sim_change_remove(api, store->items[i]);
}

void api_tick(struct api *api, int64_t now_ms)
{
    if (api->n_timers)
        run_timers(api, now_ms);
    if (api->config.renew_leases_ms)
        sim_agents_renew(api, now_ms);
    if (now_ms < api->next_sweep_ms)
        return;
    /* Objects up to the version of a sweep were written before that sweep. */
    uint64_t *at = &api->sweeps[api->n_sweeps++ % SWEEPS];
    if (api->n_sweeps > SWEEPS)
        for (size_t k = 0; k < KINDS_N; k++)
            if (api->stores[k].kind->passing)
                sweep(api, &api->stores[k], *at);
    *at = api->rv;
    api->next_sweep_ms = now_ms + SWEEP_MS;
}
