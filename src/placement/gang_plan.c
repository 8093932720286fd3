/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/gang_plan.h"

#include <stdlib.h>

#include "base/mem.h"
#include "placement/placement_priv.h"

/* The cards of a node that has a member of this attempt. */
struct seen_node {
    struct card *cards;     /* NULL: no member yet */
    uint64_t claimed;       /* through nvidia.com/gpu */
    struct resources taken; /* by the members */
    bool devices;           /* by a member: any of the free cards can be one of those */
};

/* Does a member fit on the node beside no other member? Found out once, for all attempts. */
enum known { UNKNOWN, FITS, FITS_NOT };

/* The members with equal requests. */
struct shape {
    const struct request *request;
    struct resources requests; /* of each member */
    struct gang_plan_member *members[GANG_PLAN_MEMBERS];
    size_t n;
    size_t alone;     /* number of nodes where one of them fits */
    bool lacks_space; /* on a node of this attempt that has cards for one */
    uint8_t *on_node; /* enum known, by position in plan->nodes */
};

struct search {
    const struct gang_plan *plan;
    struct arena *a;
    struct shape *shapes;
    size_t n_shapes;
    struct seen_node *seen; /* by position in plan->nodes */
    bool *full;             /* has no place left for the shape */
    bool backward;
};

static bool same_shape(const struct request *a, const struct resources *x,
                       const struct request *b, const struct resources *y)
{
    return x->cpu_milli == y->cpu_milli && x->memory == y->memory && request_equal(a, b);
}

static struct shape *shape_find(const struct search *s, const struct gang_plan_member *m)
{
    for (size_t i = 0; i < s->n_shapes; i++)
        if (same_shape(s->shapes[i].request, &s->shapes[i].requests, m->request,
                       &m->requests))
            return &s->shapes[i];
    return NULL;
}

/* False: too many members or shapes. */
static bool group(struct search *s, struct gang_plan_member *members, size_t n)
{
    s->n_shapes = 0;
    for (size_t i = 0; i < n && n <= GANG_PLAN_MEMBERS; i++) {
        struct shape *shape = shape_find(s, &members[i]);
        if (!shape && s->n_shapes == GANG_PLAN_SHAPES)
            return false;
        if (!shape) {
            shape = &s->shapes[s->n_shapes++];
            shape->request = members[i].request;
            shape->requests = members[i].requests;
            shape->n = shape->alone = 0;
            shape->on_node = arena_zalloc(s->a, s->plan->n_nodes + 1);
        }
        shape->members[shape->n++] = &members[i];
    }
    return n <= GANG_PLAN_MEMBERS;
}

/* The node's cards without members of this attempt. Returns the cards that nominated pods
 * get through nvidia.com/gpu. */
static uint64_t see(const struct search *s, const struct ledger_node *node,
                    struct card *cards)
{
    const struct gang_plan *plan = s->plan;
    uint64_t claimed = node->claimed;
    ledger_cards_seen(node, plan->priority, plan->uid, cards);
    if (node->nominated)
        claimed +=
            placement_take_nominated(node, cards, plan->priority, plan->uid, plan->gang);
    return claimed;
}

/* Does the request fit on an untouched node? Decided by the ledger's sums where they are
 * the whole truth. */
static bool fits_untouched(const struct search *s, const struct ledger_node *node,
                           const struct request *r)
{
    struct card cards[SCV_MAX_CARDS];
    enum fit alone = placement_fit(node, r);
    if (alone == FIT_NEVER || (!node->nominated && !node->reserved))
        return alone == FIT_YES;
    uint64_t claimed = see(s, node, cards);
    return placement_fit_cards(node, cards, claimed, r) == FIT_YES;
}

/* What one member takes of a node. */
static struct resources one_of(const struct resources *requests)
{
    return (struct resources){requests->cpu_milli, requests->memory, 1};
}

/* Has the node the CPU, memory and slot for one more member? */
static bool has_space(const struct search *s, const struct ledger_node *node,
                      const struct seen_node *seen, const struct resources *requests)
{
    struct resources wanted = one_of(requests);
    struct resources sum = ledger_requests_seen(node, s->plan->priority, s->plan->uid);
    resources_add(&sum, &seen->taken);
    return ledger_requests_fit(node, &sum, &wanted);
}

static void place(const struct search *s, size_t at, struct gang_plan_member *m)
{
    const struct ledger_node *node = s->plan->nodes[at];
    struct seen_node *seen = &s->seen[at];
    uint32_t picks[REQUEST_MAX_CARDS];
    if (!seen->cards) {
        seen->cards = arena_zalloc(s->a, (node->n_cards + 1) * sizeof *seen->cards);
        seen->claimed = see(s, node, seen->cards);
    }
    m->cards = 0;
    if (m->request->kind == REQUEST_DEVICES) {
        seen->claimed += m->request->cards;
        seen->devices = true;
    } else if (placement_take(seen->cards, node->n_cards, m->request, picks)) {
        for (uint32_t i = 0; i < m->request->cards; i++)
            m->cards |= (uint64_t)1 << picks[i];
    }
    const struct resources one = one_of(&m->requests);
    resources_add(&seen->taken, &one);
    m->node = node;
    m->placed = true;
}

static bool fits_alone(const struct search *s, size_t at, const struct shape *shape)
{
    uint8_t *known = &shape->on_node[at];
    if (*known == UNKNOWN)
        *known = fits_untouched(s, s->plan->nodes[at], shape->request) ? FITS : FITS_NOT;
    return *known == FITS;
}

static bool fits(const struct search *s, size_t at, struct shape *shape)
{
    const struct ledger_node *node = s->plan->nodes[at];
    const struct seen_node *seen = &s->seen[at];
    const struct request *r = shape->request;
    bool fit = fits_alone(s, at, shape);
    if (fit && seen->devices && r->kind != REQUEST_DEVICES)
        fit = false;
    else if (fit && seen->cards)
        fit = placement_fit_cards(node, seen->cards, seen->claimed, r) == FIT_YES;
    if (!fit || has_space(s, node, seen, &shape->requests))
        return fit;
    shape->lacks_space = true;
    return false;
}

/* Places the members of the shape; returns how many found a place. */
static size_t place_shape(const struct search *s, struct shape *shape)
{
    size_t n_nodes = s->plan->n_nodes, failed = 0, done = 0;
    bool spread = s->plan->spread || shape->request->placement == PLACE_SPREAD;
    memset(s->full, 0, n_nodes * sizeof *s->full);
    shape->lacks_space = false;
    size_t at = 0;
    while (failed < n_nodes && done < shape->n) {
        size_t i = s->backward ? n_nodes - 1 - at : at;
        bool fit = !s->full[i] && fits(s, i, shape);
        if (fit)
            place(s, i, shape->members[done++]);
        failed += !fit && !s->full[i];
        s->full[i] |= !fit;
        if (!fit || spread)
            at = (at + 1) % n_nodes;
    }
    for (size_t i = done; i < shape->n; i++)
        shape->members[i]->lacks_space = shape->lacks_space;
    return done;
}

static size_t attempt(struct search *s, struct gang_plan_member *members, size_t n)
{
    size_t placed = 0;
    memset(s->seen, 0, s->plan->n_nodes * sizeof *s->seen);
    for (size_t i = 0; i < n; i++) {
        members[i].node = NULL;
        members[i].cards = 0;
        members[i].lacks_space = false;
        members[i].placed = request_fits_anywhere(members[i].request);
    }
    for (size_t i = 0; i < s->n_shapes; i++)
        placed += request_fits_anywhere(s->shapes[i].request)
                      ? s->shapes[i].n
                      : place_shape(s, &s->shapes[i]);
    return placed;
}

/* Whole cards before parts of cards, then the larger amount. */
static int compare_size(const void *a, const void *b)
{
    const struct request *x = ((const struct shape *)a)->request;
    const struct request *y = ((const struct shape *)b)->request;
    bool x_part = x->kind == REQUEST_MEMORY, y_part = y->kind == REQUEST_MEMORY;
    if (x_part != y_part)
        return x_part ? 1 : -1;
    if (x->mib_per_card != y->mib_per_card && x_part)
        return x->mib_per_card > y->mib_per_card ? -1 : 1;
    if (x->cards != y->cards)
        return x->cards > y->cards ? -1 : 1;
    return (x->mib_per_card < y->mib_per_card) - (x->mib_per_card > y->mib_per_card);
}

static int compare_alone(const void *a, const void *b)
{
    const struct shape *x = a, *y = b;
    if (x->alone != y->alone)
        return x->alone < y->alone ? -1 : 1;
    return compare_size(a, b);
}

static void count_alone(struct search *s)
{
    for (size_t k = 0; k < s->n_shapes; k++)
        for (size_t i = 0; i < s->plan->n_nodes; i++)
            s->shapes[k].alone += fits_alone(s, i, &s->shapes[k]);
}

static void keep(struct gang_plan_member *best, const struct gang_plan_member *members,
                 size_t n, size_t *most, size_t placed)
{
    if (placed <= *most)
        return;
    *most = placed;
    memcpy(best, members, n * sizeof *members);
}

size_t gang_plan_place(const struct gang_plan *plan, struct gang_plan_member *members,
                       size_t n, struct arena *a)
{
    struct search s = {.plan = plan, .a = a};
    s.shapes = arena_alloc(a, GANG_PLAN_SHAPES * sizeof *s.shapes);
    if (!group(&s, members, n))
        return 0;
    s.seen = arena_alloc(a, (plan->n_nodes + 1) * sizeof *s.seen);
    s.full = arena_alloc(a, plan->n_nodes + 1);
    struct gang_plan_member *best = arena_alloc(a, (n + 1) * sizeof *best);
    size_t most = 0;
    for (int i = 0; i < 4 && most < n; i++) {
        if (i == 2)
            count_alone(&s);
        if (i == 0 || i == 2)
            qsort(s.shapes, s.n_shapes, sizeof *s.shapes,
                  i == 0 ? compare_size : compare_alone);
        s.backward = i & 1;
        size_t placed = attempt(&s, members, n);
        keep(best, members, n, &most, placed);
    }
    if (most)
        memcpy(members, best, n * sizeof *members);
    return most;
}

bool gang_plan_is_bounded(const struct gang_plan_member *members, size_t n)
{
    const struct gang_plan_member *shapes[GANG_PLAN_SHAPES];
    size_t n_shapes = 0;
    for (size_t i = 0; i < n && n <= GANG_PLAN_MEMBERS; i++) {
        size_t k = 0;
        while (k < n_shapes && !same_shape(shapes[k]->request, &shapes[k]->requests,
                                           members[i].request, &members[i].requests))
            k++;
        if (k == GANG_PLAN_SHAPES)
            return false;
        if (k == n_shapes)
            shapes[n_shapes++] = &members[i];
    }
    return n <= GANG_PLAN_MEMBERS;
}
