/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/grants.h"

#include <stdlib.h>

#include "base/mem.h"

enum {
    CARDS_MAX = 64, /* of one container; as many as a node can have */
};

struct grant *grant_new(struct span uid, struct span ns, struct span name,
                        struct span container, enum container_role role,
                        enum ids_resource resource)
{
    struct grant *g = xcalloc(1, sizeof *g);
    g->uid = arena_copy(&g->arena, uid);
    g->ns = arena_copy(&g->arena, ns);
    g->name = arena_copy(&g->arena, name);
    g->container = arena_copy(&g->arena, container);
    g->role = role;
    g->resource = resource;
    g->cards = arena_zalloc(&g->arena, CARDS_MAX * sizeof *g->cards);
    return g;
}

void grant_free(struct grant *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_cards; i++)
        free(g->cards[i].units);
    struct arena arena = g->arena;
    free(g);
    arena_fini(&arena);
}

const struct grant_card *grant_card(const struct grant *g, struct span uuid)
{
    for (size_t i = 0; i < g->n_cards; i++)
        if (span_eq(g->cards[i].uuid, uuid))
            return &g->cards[i];
    return NULL;
}

/* Where the unit is, or belongs. */
static size_t place(const struct grant_card *c, int64_t unit)
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

bool grant_add(struct grant *g, struct span uuid, int32_t index, int64_t unit)
{
    struct grant_card *c = (struct grant_card *)grant_card(g, uuid);
    if (c && unit < 0)
        return false;
    if (!c) {
        if (g->n_cards == CARDS_MAX)
            return false;
        c = &g->cards[g->n_cards++];
        c->uuid = arena_copy(&g->arena, uuid);
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

bool grant_holds(const struct grant *g, struct span uuid, int64_t unit)
{
    const struct grant_card *c = grant_card(g, uuid);
    if (!c || unit < 0)
        return c != NULL;
    size_t at = place(c, unit);
    return at < c->n_units && c->units[at] == unit;
}

int64_t grant_amount(const struct grant *g)
{
    int64_t n = 0;
    for (size_t i = 0; i < g->n_cards; i++)
        n += g->resource == IDS_COUNT ? 1 : (int64_t)g->cards[i].n_units;
    return n;
}

void grants_fini(struct grants *gs)
{
    for (size_t i = 0; i < gs->n; i++)
        grant_free(gs->items[i]);
    free(gs->items);
    *gs = (struct grants){0};
}

struct grant *grants_find(const struct grants *gs, struct span uid, struct span container,
                          enum ids_resource resource)
{
    for (size_t i = 0; i < gs->n; i++) {
        struct grant *g = gs->items[i];
        if (g->resource == resource && span_eq(g->uid, uid) &&
            span_eq(g->container, container))
            return g;
    }
    return NULL;
}

void grants_put(struct grants *gs, struct grant *g)
{
    struct grant *old = grants_find(gs, g->uid, g->container, g->resource);
    if (old)
        grants_drop(gs, old);
    MEM_GROW(gs->items, gs->cap, gs->n + 1);
    gs->items[gs->n++] = g;
}

static size_t drop_where(struct grants *gs, const struct grant *one, struct span uid)
{
    size_t kept = 0, n = gs->n;
    for (size_t i = 0; i < n; i++) {
        struct grant *g = gs->items[i];
        if (one ? g == one : span_eq(g->uid, uid))
            grant_free(g);
        else
            gs->items[kept++] = g;
    }
    gs->n = kept;
    return n - kept;
}

size_t grants_drop(struct grants *gs, const struct grant *g)
{
    return drop_where(gs, g, (struct span){0});
}

size_t grants_drop_pod(struct grants *gs, struct span uid)
{
    return drop_where(gs, NULL, uid);
}
