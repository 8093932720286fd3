/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/change_priv.h"

#include "base/mem.h"
#include "sim/meta_priv.h"
#include "sim/pod_priv.h"
#include "sim/watch_priv.h"

enum { SWEEP_MS = 60 * 1000 };

static void announce(struct api *api, const struct store *store)
{
    sim_watch_notify(api, sim_kind_index(store->kind),
                     sim_store_event(store, store->next_seq - 1));
    if (api->wake)
        api->wake(api->wake_ctx);
}

/* Playing the kubelet: does somebody have to start this pod? */
static bool waits_for_kubelet(const struct api *api, const struct kind *kind,
                              const json_t *root)
{
    return api->config.run_pods && kind->binding &&
           sim_jsonx_span(root, "spec.nodeName").n &&
           span_eq(sim_jsonx_span(root, "status.phase"), SPAN("Pending")) &&
           !sim_jsonx_at(root, "metadata.deletionTimestamp");
}

const struct object *sim_change_put(struct api *api, const struct kind *kind,
                                    json_t *root)
{
    struct store *store = sim_api_store(api, kind);
    struct object *o = sim_object_new(kind, root, ++api->rv);
    sim_store_put(store, o);
    announce(api, store);
    if (waits_for_kubelet(api, kind, root))
        sim_change_later(api, 0, ERRAND_RUN, o);
    return o;
}

const struct object *sim_change_remove(struct api *api, const struct object *o)
{
    struct store *store = sim_api_store(api, o->kind);
    struct object *last = sim_object_with_rv(o, ++api->rv);
    sim_store_remove(store, last);
    announce(api, store);
    return last; /* the history holds it */
}

/* -- errands
 * ------------------------------------------------------------------------------ */

void sim_change_later(struct api *api, int64_t at_ms, enum errand_what what,
                      const struct object *o)
{
    MEM_GROW(api->errands, api->cap_errands, api->n_errands + 1);
    api->errands[api->n_errands++] =
        (struct errand){at_ms, what, sim_object_ref((struct object *)o)};
}

static void remove_pod(struct api *api, const struct object *o)
{
    cleanup_json json_t *root = sim_object_parse(o);
    if (!sim_meta_has_finalizers(root)) {
        sim_change_remove(api, o);
        return;
    }
    sim_jsonx_set_int(json_object_get(root, "metadata"), "deletionGracePeriodSeconds", 0);
    sim_change_put(api, o->kind, root);
}

static void run_errand(struct api *api, const struct errand *e, int64_t now_ms)
{
    const struct object *o =
        sim_store_find(sim_api_store(api, e->object->kind), e->object->key);
    if (!o || !span_eq(o->uid, e->object->uid))
        return;
    if (e->what == ERRAND_REMOVE) {
        if (o->deleting)
            remove_pod(api, o);
        return;
    }
    cleanup_json json_t *pod = sim_object_parse(o);
    if (!waits_for_kubelet(api, o->kind, pod))
        return;
    sim_pod_run(pod, now_ms);
    sim_change_put(api, o->kind, pod);
}

static void run_errands(struct api *api, int64_t now_ms)
{
    size_t kept = 0, n = api->n_errands; /* those that are added meanwhile wait */
    for (size_t i = 0; i < n; i++) {
        struct errand e = api->errands[i];
        if (e.at_ms > now_ms) {
            api->errands[kept++] = e;
            continue;
        }
        run_errand(api, &e, now_ms);
        sim_object_unref(e.object);
    }
    memmove(api->errands + kept, api->errands + n,
            (api->n_errands - n) * sizeof *api->errands);
    api->n_errands -= n - kept;
}

/* Removes what was not changed after a version. */
static void sweep(struct api *api, struct store *store, uint64_t before)
{
    for (size_t i = store->n; i-- > 0;)
        if (store->items[i]->rv <= before)
            sim_change_remove(api, store->items[i]);
}

void api_tick(struct api *api, int64_t now_ms)
{
    if (api->n_errands)
        run_errands(api, now_ms);
    if (now_ms < api->next_sweep_ms)
        return;
    /* The version at a sweep stands for all that was written before it. */
    uint64_t *at = &api->sweeps[api->n_sweeps++ % SWEEPS];
    if (api->n_sweeps > SWEEPS)
        for (size_t k = 0; k < KINDS_N; k++)
            if (api->stores[k].kind->passing)
                sweep(api, &api->stores[k], *at);
    *at = api->rv;
    api->next_sweep_ms = now_ms + SWEEP_MS;
}
