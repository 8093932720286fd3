/* SPDX-License-Identifier: Apache-2.0 */
#include "node/allocation.h"

#include <stdlib.h>

#include "base/mem.h"

enum {
    CARDS_MAX = 64, /* of one container; a node has at most as many */
};

struct allocation *allocation_new(struct span uid, struct span ns, struct span name,
                                  struct span container, enum container_role role,
                                  enum ids_resource resource)
{
    struct allocation *al = xcalloc(1, sizeof *al);
    al->uid = arena_copy(&al->arena, uid);
    al->ns = arena_copy(&al->arena, ns);
    al->name = arena_copy(&al->arena, name);
    al->container = arena_copy(&al->arena, container);
    al->role = role;
    al->resource = resource;
    al->cards = arena_zalloc(&al->arena, CARDS_MAX * sizeof *al->cards);
    return al;
}

void allocation_free(struct allocation *al)
{
    if (!al)
        return;
    for (size_t i = 0; i < al->n_cards; i++)
        free(al->cards[i].units);
    struct arena arena = al->arena;
    free(al);
    arena_fini(&arena);
}

const struct allocation_card *allocation_card(const struct allocation *al,
                                              struct span uuid)
{
    for (size_t i = 0; i < al->n_cards; i++)
        if (span_eq(al->cards[i].uuid, uuid))
            return &al->cards[i];
    return NULL;
}

/* Index of the unit, or where it would be inserted. */
static size_t place(const struct allocation_card *c, int64_t unit)
{
    size_t low = 0, high = c->n_units;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c->units[middle] < unit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool allocation_add(struct allocation *al, struct span uuid, int32_t index, int64_t unit)
{
    struct allocation_card *c = (struct allocation_card *)allocation_card(al, uuid);
    if (c && unit < 0)
        return false;
    if (!c) {
        if (al->n_cards == CARDS_MAX)
            return false;
        c = &al->cards[al->n_cards++];
        c->uuid = arena_copy(&al->arena, uuid);
        c->index = index;
    }
    if (unit < 0)
        return true;
    size_t at = place(c, unit);
    if (at < c->n_units && c->units[at] == unit)
        return false;
    if ((c->n_units & (c->n_units - 1)) == 0)
        c->units =
            xreallocarray(c->units, c->n_units ? c->n_units * 2 : 1, sizeof *c->units);
    memmove(c->units + at + 1, c->units + at, (c->n_units - at) * sizeof *c->units);
    c->units[at] = (uint32_t)unit;
    c->n_units++;
    return true;
}

bool allocation_holds(const struct allocation *al, struct span uuid, int64_t unit)
{
    const struct allocation_card *c = allocation_card(al, uuid);
    if (!c || unit < 0)
        return c != NULL;
    size_t at = place(c, unit);
    return at < c->n_units && c->units[at] == unit;
}

int64_t allocation_amount(const struct allocation *al)
{
    int64_t n = 0;
    for (size_t i = 0; i < al->n_cards; i++)
        n += al->resource == IDS_COUNT ? 1 : (int64_t)al->cards[i].n_units;
    return n;
}

void allocation_set_fini(struct allocation_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        allocation_free(set->items[i]);
    free(set->items);
    *set = (struct allocation_set){0};
}

struct allocation *allocation_set_find(const struct allocation_set *set, struct span uid,
                                       struct span container, enum ids_resource resource)
{
    for (size_t i = 0; i < set->n; i++) {
        struct allocation *al = set->items[i];
        if (al->resource == resource && span_eq(al->uid, uid) &&
            span_eq(al->container, container))
            return al;
    }
    return NULL;
}

void allocation_set_put(struct allocation_set *set, struct allocation *al)
{
    struct allocation *old =
        allocation_set_find(set, al->uid, al->container, al->resource);
    if (old)
        allocation_set_drop(set, old);
    MEM_GROW(set->items, set->cap, set->n + 1);
    set->items[set->n++] = al;
}

static size_t drop_where(struct allocation_set *set, const struct allocation *one,
                         struct span uid)
{
    size_t kept = 0, n = set->n;
    for (size_t i = 0; i < n; i++) {
        struct allocation *al = set->items[i];
        if (one ? al == one : span_eq(al->uid, uid))
            allocation_free(al);
        else
            set->items[kept++] = al;
    }
    set->n = kept;
    return n - kept;
}

size_t allocation_set_drop(struct allocation_set *set, const struct allocation *al)
{
    return drop_where(set, al, (struct span){0});
}

size_t allocation_set_drop_pod(struct allocation_set *set, struct span uid)
{
    return drop_where(set, NULL, uid);
}
