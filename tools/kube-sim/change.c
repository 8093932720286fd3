/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/change_priv.h"

#include "base/mem.h"
#include "kube-sim/watch_priv.h"

static void announce(struct api *api, const struct store *store)
{
    sim_watch_notify(api, sim_kind_index(store->kind),
                     sim_store_event(store, store->next_seq - 1));
    if (api->wake)
        api->wake(api->wake_ctx);
}

const struct object *sim_change_put(struct api *api, const struct kind *kind,
                                    json_t *root)
{
    struct store *store = sim_api_store(api, kind);
    struct object *o = sim_object_new(kind, root, ++api->rv);
    sim_store_put(store, o);
    announce(api, store);
    if (api->config.run_pods && kind->binding)
        sim_change_schedule(api, 0, TIMER_RUN, o); /* if it has not started by then */
    return o;
}

const struct object *sim_change_remove(struct api *api, const struct object *o)
{
    struct store *store = sim_api_store(api, o->kind);
    struct object *last = sim_object_with_rv(o, ++api->rv);
    sim_store_remove(store, last);
    announce(api, store);
    return last; /* the history holds a reference */
}

/* -- timers -- */

void sim_change_schedule(struct api *api, int64_t at_ms, enum timer_action what,
                         const struct object *o)
{
    MEM_GROW(api->timers, api->cap_timers, api->n_timers + 1);
    api->timers[api->n_timers++] =
        (struct timer){at_ms, what, sim_object_ref((struct object *)o)};
}
