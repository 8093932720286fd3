/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/defrag_priv.h"

#include <stdlib.h>

#include "base/mem.h"

/*
 * Plans of 0 moves are tried on all nodes, then plans of 1 move, and so on. A node takes
 * part from the number of pods that must leave it at least, until it turns out that no
 * larger set helps.
 */

enum { STEPS_MAX = 1 << 20 }; /* of all searches: about a second */

struct listed {
    const struct ledger_node *node;
    int64_t free_mib;
};

static int compare_listed(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    if (x->free_mib != y->free_mib)
        return x->free_mib < y->free_mib ? -1 : 1;
    return span_cmp(x->node->name, y->node->name);
}

static void list_nodes(struct defrag_state *s)
{
    const struct ledger *l = s->world->ledger;
    cleanup_free struct listed *list = xcalloc(ledger_node_count(l) + 1, sizeof *list);
    size_t n = 0;
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (!node)
            continue;
        list[n] = (struct listed){.node = node};
        for (uint32_t c = 0; c < node->n_cards; c++)
            list[n].free_mib += node->cards[c].free_mib;
        n++;
    }
    qsort(list, n, sizeof *list, compare_listed);
    s->n_order = n;
    s->order = arena_alloc(s->arena, (n + 1) * sizeof(void *));
    s->rooms = arena_alloc(s->arena, (n + 1) * sizeof *s->rooms);
    s->trials = arena_zalloc(s->arena, (n + 1) * sizeof(void *));
    s->shapes = arena_zalloc(s->arena, DEFRAG_SHAPES * sizeof *s->shapes);
    for (size_t i = 0; i < n; i++) {
        s->order[i] = list[i].node;
        s->rooms[i] = s->world->node_room(s->world->ctx, list[i].node);
    }
}

static bool is_candidate(const struct defrag_state *s, const struct ledger_node *node)
{
    const struct defrag_target *t = s->target;
    return (!t->node.n || span_eq(t->node, node->name)) && node->state == NODE_USABLE &&
           placement_fit(node, t->request) != FIT_NEVER &&
           s->world->may_run(s->world->ctx, NULL, node);
}

static int compare_candidates(const void *a, const void *b)
{
    const struct defrag_node *x = a, *y = b;
    if (x->least != y->least)
        return x->least < y->least ? -1 : 1;
    return span_cmp(x->node->name, y->node->name);
}

static size_t list_candidates(struct defrag_state *s, struct defrag_node *candidates)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_order; i++) {
        if (!is_candidate(s, s->order[i]))
            continue;
        defrag_node_read(s, s->order[i], s->rooms[i], &candidates[n]);
        n += candidates[n].least != SIZE_MAX;
    }
    qsort(candidates, n, sizeof *candidates, compare_candidates);
    return n;
}

/* Searches all candidates for plans of up to m moves. False: no larger m can help. */
static bool search_all(struct defrag_state *s, struct defrag_node *candidates, size_t n,
                       size_t m)
{
    bool more = false;
    for (size_t i = 0; i < n && s->steps; i++) {
        if (candidates[i].least == SIZE_MAX)
            continue;
        if (candidates[i].least > m)
            return true; /* as do all later ones, which are in this order */
        if (defrag_node_search(s, &candidates[i], m))
            more = true;
        else
            candidates[i].least = SIZE_MAX;
    }
    return more;
}

bool defrag_find(const struct defrag_world *world, const struct defrag_target *target,
                 struct arena *a, struct defrag_plan *plan)
{
    struct defrag_state s = {
        .world = world, .target = target, .arena = a, .steps = STEPS_MAX};
    list_nodes(&s);
    cleanup_free struct defrag_node *candidates =
        xcalloc(s.n_order + 1, sizeof *candidates);
    size_t n = list_candidates(&s, candidates), m = n ? candidates[0].least : 0;
    while (!s.found && s.steps && search_all(&s, candidates, n, m))
        m++;
    if (s.steps == 0)
        s.bounded = true;
    *plan = s.best;
    plan->bounded = s.bounded;
    return s.found;
}
