/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/api_priv.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "kube-sim/jsonx_priv.h"

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
        assert(!api->watches[i]);
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
