/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pods.h"

#include "domain/keys.h"

bool pods_is_gpu(struct span resource)
{
    return span_eq(resource, SPAN(KEY_GPU_MEM)) ||
           span_eq(resource, SPAN(KEY_GPU_COUNT)) ||
           span_starts(resource, SPAN("nvidia.com/"));
}

static bool is_of(struct span id, struct span uuid)
{
    if (!uuid.n || !span_starts(id, uuid))
        return false;
    struct span rest = {id.p + uuid.n, id.n - uuid.n};
    return !rest.n || span_starts(rest, SPAN("::"));
}

static void add_uuids(const struct pods_entry *e, const struct scv *scv, struct arena *a,
                      struct scv_held *held)
{
    held->uuids = arena_alloc(a, (scv->n_cards + 1) * sizeof *held->uuids);
    for (size_t i = 0; i < scv->n_cards; i++)
        for (size_t k = 0; k < e->n_ids; k++)
            if (is_of(e->ids[k], scv->cards[i].uuid)) {
                held->uuids[held->n_uuids++] = scv->cards[i].uuid;
                break;
            }
}

void pods_held(const struct pods *pods, struct scv *scv, struct arena *a)
{
    scv->held = arena_alloc(a, (pods->n + 1) * sizeof *scv->held);
    scv->n_held = 0;
    for (size_t i = 0; i < pods->n && scv->n_held < SCV_MAX_HELD; i++) {
        const struct pods_entry *e = &pods->entries[i];
        if (!pods_is_gpu(e->resource))
            continue;
        struct scv_held *held = &scv->held[scv->n_held++];
        *held = (struct scv_held){.ns = e->ns,
                                  .pod = e->pod,
                                  .container = e->container,
                                  .resource = e->resource,
                                  .units = (int64_t)e->n_ids};
        add_uuids(e, scv, a, held);
    }
}
