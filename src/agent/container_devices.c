/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/container_devices.h"

#include <stdlib.h>

#include "domain/ids.h"

bool container_devices_is_gpu(struct span resource)
{
    enum ids_resource ours;
    return ids_resource_read(resource, &ours) || scv_is_nvidia_resource(resource);
}

/* -- sorting -- */

/* One id of one container. */
struct row {
    const struct container_devices_entry *of;
    struct span id;
};

static int by_holder(const struct container_devices_entry *a,
                     const struct container_devices_entry *b)
{
    int order = span_cmp(a->ns, b->ns);
    if (!order)
        order = span_cmp(a->pod, b->pod);
    if (!order)
        order = span_cmp(a->container, b->container);
    return order ? order : span_cmp(a->resource, b->resource);
}

static int by_row(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = x->of == y->of ? 0 : by_holder(x->of, y->of);
    return order ? order : span_cmp(x->id, y->id);
}

static size_t rows_of(const struct container_devices *from, struct arena *a,
                      struct row **rows)
{
    size_t n = 0;
    for (size_t i = 0; i < from->n; i++)
        n += container_devices_is_gpu(from->entries[i].resource) ? from->entries[i].n_ids
                                                                 : 0;
    *rows = arena_alloc(a, (n + 1) * sizeof **rows);
    n = 0;
    for (size_t i = 0; i < from->n; i++) {
        const struct container_devices_entry *e = &from->entries[i];
        for (size_t k = 0; k < e->n_ids && container_devices_is_gpu(e->resource); k++)
            (*rows)[n++] = (struct row){e, e->ids[k]};
    }
    qsort(*rows, n, sizeof **rows, by_row);
    return n;
}

void container_devices_normalize(const struct container_devices *from, struct arena *a,
                                 struct container_devices *to)
{
    cleanup_arena struct arena scratch = {0};
    struct row *rows;
    size_t n = rows_of(from, &scratch, &rows);
    struct container_devices_entry *entries = arena_alloc(a, (n + 1) * sizeof *entries);
    struct span *ids = arena_alloc(a, (n + 1) * sizeof *ids);
    *to = (struct container_devices){.entries = entries};
    for (size_t i = 0; i < n; i++) {
        const struct row *row = &rows[i];
        bool same = i && by_holder(rows[i - 1].of, row->of) == 0;
        if (same && span_eq(rows[i - 1].id, row->id))
            continue;
        if (!same)
            entries[to->n++] = (struct container_devices_entry){
                .ns = arena_copy(a, row->of->ns),
                .pod = arena_copy(a, row->of->pod),
                .container = arena_copy(a, row->of->container),
                .resource = arena_copy(a, row->of->resource),
                .ids = ids};
        *ids++ = arena_copy(a, row->id);
        entries[to->n - 1].n_ids++;
    }
}

/* -- units -- */

static int by_tag(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct ids_tag));
}

void container_devices_count(const struct container_devices_entry *allocatable, size_t n,
                             struct arena *a, struct container_devices *to)
{
    size_t all = 0, found = 0, kept = 0;
    for (size_t i = 0; i < n; i++)
        all += allocatable[i].n_ids;
    struct container_devices_units *units = arena_zalloc(a, (all + 1) * sizeof *units);
    for (size_t i = 0; i < n; i++) {
        enum ids_resource resource;
        struct ids_id id;
        if (!ids_resource_read(allocatable[i].resource, &resource) || resource != IDS_MEM)
            continue;
        for (size_t k = 0; k < allocatable[i].n_ids; k++)
            if (ids_read(IDS_MEM, allocatable[i].ids[k], &id))
                units[found++].tag = id.tag;
    }
    if (found)
        qsort(units, found, sizeof *units, by_tag);
    for (size_t i = 0; i < found; i++) {
        if (!kept || by_tag(&units[kept - 1], &units[i]))
            units[kept++] = (struct container_devices_units){units[i].tag, 0};
        units[kept - 1].n++;
    }
    to->units = units;
    to->n_units = kept;
}

int64_t container_devices_unit_mib(int64_t total_mib, int64_t n)
{
    for (int64_t unit = 1; n > 0 && unit <= total_mib; unit *= 2)
        if (total_mib / unit == n)
            return unit;
    return -1;
}

/* -- podList -- */

static bool has_card(const struct container_devices_entry *e, const struct ids_card *card)
{
    for (size_t i = 0; i < e->n_ids; i++)
        if (ids_match_card(e->resource, e->ids[i], card))
            return true;
    return false;
}

void container_devices_to_scv(const struct container_devices *devices, struct scv *scv,
                              struct arena *a)
{
    struct ids_card *cards = arena_alloc(a, (scv->n_cards + 1) * sizeof *cards);
    for (size_t i = 0; i < scv->n_cards; i++)
        cards[i] = ids_card_of(scv->cards[i].uuid);
    scv->held = arena_alloc(a, (devices->n + 1) * sizeof *scv->held);
    for (scv->n_held = 0; scv->n_held < devices->n && scv->n_held < SCV_MAX_HELD;
         scv->n_held++) {
        const struct container_devices_entry *e = &devices->entries[scv->n_held];
        struct scv_held *held = &scv->held[scv->n_held];
        *held = (struct scv_held){
            .ns = e->ns,
            .pod = e->pod,
            .container = e->container,
            .resource = e->resource,
            .units = (int64_t)e->n_ids,
            .uuids = arena_alloc(a, (scv->n_cards + 1) * sizeof *held->uuids)};
        for (size_t i = 0; i < scv->n_cards; i++)
            if (has_card(e, &cards[i]))
                held->uuids[held->n_uuids++] = cards[i].uuid;
    }
}
