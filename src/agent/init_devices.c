/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/init_devices.h"

#include "base/file.h"
#include "base/mem.h"
#include "node/checkpoint.h"

enum { FILE_MAX_BYTES = 16 << 20 };

/* The units of the pod's sidecars on the card. Those that start after the init container
 * count, too: the order of the allocations is lost when the plugin recovers them. */
static int64_t beside(const struct allocation_set *set, const struct allocation *init,
                      struct span uuid)
{
    int64_t units = 0;
    for (size_t i = 0; i < set->n; i++) {
        const struct allocation *al = set->items[i];
        const struct allocation_card *card = allocation_card(al, uuid);
        if (card && al->role == CONTAINER_SIDECAR && span_eq(al->uid, init->uid))
            units += (int64_t)card->n_units;
    }
    return units;
}

void init_devices_of(const struct allocation_set *set, struct arena *a,
                     struct container_devices *devices)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++)
        n += set->items[i]->role == CONTAINER_INIT ? set->items[i]->n_cards : 0;
    struct container_devices_init *inits = arena_alloc(a, (n + 1) * sizeof *inits);
    devices->inits = inits;
    devices->n_inits = 0;
    devices->inits_known = true;
    for (size_t i = 0; i < set->n; i++) {
        const struct allocation *al = set->items[i];
        for (size_t c = 0; c < al->n_cards && al->role == CONTAINER_INIT; c++)
            inits[devices->n_inits++] = (struct container_devices_init){
                .pod_uid = arena_copy(a, al->uid),
                .ns = arena_copy(a, al->ns),
                .pod = arena_copy(a, al->name),
                .container = arena_copy(a, al->container),
                .uuid = arena_copy(a, al->cards[c].uuid),
                .whole = al->resource == IDS_COUNT,
                .units = (int64_t)al->cards[c].n_units,
                .beside = beside(set, al, al->cards[c].uuid)};
    }
}

int init_devices_read(const char *path, struct span node, struct arena *a,
                      struct container_devices *devices, struct err *err)
{
    cleanup_buf struct buf text = {0};
    struct allocation_set set = {0};
    *err = (struct err){0};
    int rc = file_read(path, FILE_MAX_BYTES, &text, err);
    if (rc && err->code == ERR_NOT_FOUND)
        rc = 0;
    else if (rc == 0)
        rc = checkpoint_read(&set, buf_span(&text), node, err);
    if (rc == 0)
        init_devices_of(&set, a, devices);
    allocation_set_fini(&set);
    return rc;
}
