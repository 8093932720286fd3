/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

/*
 * The API server in memory: its state, requests, changes and their watchers, and what is due by
 * the clock: pods that run or end.
 */

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
    cleanup_json_value json_t *root = sim_object_parse(o);
    struct object *last = sim_object_new(o->kind, root, ++api->rv);
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

static bool waits(const json_t *pod)
{
    return sim_jsonx_span(pod, "spec.nodeName").n &&
           span_eq(sim_jsonx_span(pod, "status.phase"), SPAN("Pending")) &&
           !sim_jsonx_at(pod, "metadata.deletionTimestamp");
}

/* Sets a bound pod that has not started to Running. */
static void sim_agents_run(struct api *api, const struct object *o, int64_t now_ms)
{
    cleanup_json_value json_t *pod = sim_object_parse(o);
    if (!waits(pod))
        return;
    sim_pod_run(pod, now_ms);
    sim_change_put(api, o->kind, pod);
}

/* Like the kubelet's final deletion with grace period 0. */
static void remove_pod(struct api *api, const struct object *o)
{
    cleanup_json_value json_t *root = sim_object_parse(o);
    sim_jsonx_set_int(json_object_get(root, "metadata"), "deletionGracePeriodSeconds", 0);
    sim_change_remove(api, sim_change_put(api, o->kind, root));
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

void api_tick(struct api *api, int64_t now_ms)
{
    if (api->n_timers)
        run_timers(api, now_ms);
}

struct store *sim_api_store(struct api *api, const struct kind *kind)
{
    return &api->stores[sim_kind_index(kind)];
}

static void thaw(struct frozen *f)
{
    for (size_t i = 0; i < f->n; i++)
        sim_object_unref(f->items[i]);
    free(f->items);
    *f = (struct frozen){0};
}

void api_free(struct api *api)
{
    if (!api)
        return;
    for (size_t i = 0; i < KINDS_N; i++) {
        assert(list_is_empty(&api->watches[i]));
        thaw(&api->frozen[i]);
        sim_store_fini(&api->stores[i]);
    }
    for (size_t i = 0; i < api->n_timers; i++)
        sim_object_unref(api->timers[i].object);
    free(api->timers);
    json_decref(api->access);
    free(api);
}

void api_on_change(struct api *api, api_wake_fn wake, void *ctx)
{
    api->wake = wake;
    api->wake_ctx = ctx;
}

void api_compact(struct api *api)
{
    for (size_t i = 0; i < KINDS_N; i++)
        sim_store_compact(&api->stores[i], api->rv);
}

static void freeze(struct api *api, size_t k)
{
    const struct store *s = &api->stores[k];
    struct frozen *f = &api->frozen[k];
    *f = (struct frozen){.on = true, .rv = api->rv, .n = s->n};
    f->items = xcalloc(s->n, sizeof *f->items);
    for (size_t i = 0; i < s->n; i++)
        f->items[i] = sim_object_ref(s->items[i]);
}

bool api_freeze(struct api *api, const char *resource, bool frozen)
{
    bool known = false;
    for (size_t k = 0; k < KINDS_N; k++) {
        if (strcmp(sim_kinds[k].plural, resource) != 0)
            continue;
        known = true;
        thaw(&api->frozen[k]);
        if (frozen)
            freeze(api, k);
    }
    return known;
}

int api_set_access(struct api *api, struct span json, struct err *err)
{
    json_t *access = sim_jsonx_parse(json, err);
    if (!access)
        return -1;
    json_decref(api->access);
    api->access = access;
    return 0;
}

uint64_t api_version(const struct api *api)
{
    return api->rv;
}

size_t api_count(const struct api *api, const char *resource)
{
    const struct kind *kind = sim_kind_by_resource(span_of(resource));
    return kind ? api->stores[sim_kind_index(kind)].n : 0;
}
