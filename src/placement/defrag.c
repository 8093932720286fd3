/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/defrag.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"

/*
 * Plans of 0 moves are tried on all nodes, then plans of 1 move, and so on. A node takes
 * part from the number of pods that must leave it at least, until it turns out that no
 * larger set helps.
 */

/* A pod that may leave the node under examination. */
struct defrag_item {
    const struct ledger_pod *pod;
    struct resources room;
    const int64_t *mib; /* by card of the node; -1: not there */
    int64_t all_mib;
    size_t from; /* the first node of the order that has room for it */
    bool removed;
};

/* The places of a pod by capacity alone: indexes into the order of nodes. */
struct defrag_shape {
    const struct request *request; /* NULL: the slot is free */
    struct resources room;
    size_t first, second; /* the first two nodes with room; n_order: none */
};
enum { DEFRAG_SHAPES = 4096 };

/* A node with moved pods. */
struct defrag_trial {
    struct card *cards;
    struct resources room;
    uint32_t moved; /* 0: the slot is free */
};

struct defrag_state {
    const struct defrag_world *world;
    const struct defrag_target *target;
    struct arena *arena;
    const struct ledger_node **order; /* all nodes by rising free memory, then by name */
    struct resources *rooms;          /* of the nodes in that order */
    size_t n_order;
    struct defrag_shape *shapes;
    size_t n_shapes;
    struct defrag_trial **trials; /* by index into the order; NULL: never used */
    uint64_t steps;               /* left */
    bool bounded;
    bool found;
    struct defrag_plan best;
};

static bool defrag_has_room(struct resources has, struct resources needs)
{
    return has.cpu_milli >= needs.cpu_milli && has.memory >= needs.memory &&
           has.pods >= needs.pods;
}

static void defrag_add_room(struct resources *room, struct resources other, int sign)
{
    room->cpu_milli += sign * other.cpu_milli;
    room->memory += sign * other.memory;
    room->pods += sign * other.pods;
}

/* A node under examination. */
struct defrag_node {
    const struct ledger_node *node;
    struct defrag_item *items; /* largest first */
    size_t n;
    struct card *cards; /* without the removed items */
    uint32_t *wholes;   /* by card: promises of the whole card */
    struct resources room;
    uint32_t widest; /* the most cards that one item has */
    size_t least;    /* the fewest items that must leave; SIZE_MAX: no set helps */
};

/* -- Where the pods of a node go --
 *
 * Each pod goes to the fullest node that takes it, the largest pod first. If the last pods
 * then have no place, the earlier ones try their next node.
 */

enum {
    VISITS_MAX = 1 << 16, /* of a node, to place the pods of one set */
    STEP_VISITS = 64,     /* that cost one step of the search */
};

struct placing {
    struct defrag_state *s;
    const struct ledger_node *own;
    struct defrag_item *const *items;
    size_t n;
    struct defrag_move *moves;
    unsigned visits;
};

static bool fits_alone(const struct ledger_node *node, struct resources has,
                       const struct request *r, struct resources room)
{
    return !node->nominated && defrag_has_room(has, room) &&
           select_fit(node, r) == FIT_YES;
}

static size_t next_place(const struct defrag_state *s, const struct request *r,
                         struct resources room, size_t from)
{
    size_t i = from;
    while (i < s->n_order && !fits_alone(s->order[i], s->rooms[i], r, room))
        i++;
    return i;
}

/* The slot of the shape, or a free one; NULL: the table is full. */
static struct defrag_shape *find_shape(struct defrag_state *s, const struct request *r,
                                       struct resources room)
{
    const int64_t parts[] = {r->kind,        r->cards,    r->mib_per_card,
                             room.cpu_milli, room.memory, room.pods};
    uint64_t h = hash_bytes(0, parts, sizeof parts);
    for (size_t i = 0; i < 64; i++) {
        struct defrag_shape *shape = &s->shapes[(h + i) % DEFRAG_SHAPES];
        if (!shape->request ||
            (resources_equal(&shape->room, &room) && request_equal(shape->request, r)))
            return shape;
    }
    return NULL;
}

/* The first node, other than `own`, that has room for the pod, whatever its taints; n_order:
 * none. */
static size_t first_place(struct defrag_state *s, const struct request *r,
                          struct resources room, const struct ledger_node *own)
{
    struct defrag_shape full = {0}, *shape = find_shape(s, r, room);
    if (!shape)
        shape = &full;
    if (!shape->request) {
        shape->request = r;
        shape->room = room;
        shape->first = next_place(s, r, room, 0);
        shape->second = next_place(s, r, room, shape->first + 1);
    }
    bool is_own = shape->first < s->n_order && s->order[shape->first] == own;
    return is_own ? shape->second : shape->first;
}

static struct defrag_trial *trial_of(struct defrag_state *s, size_t i)
{
    const struct ledger_node *node = s->order[i];
    struct defrag_trial *t = s->trials[i];
    if (t && t->moved)
        return t;
    if (!t) {
        t = s->trials[i] = arena_alloc(s->arena, sizeof *t);
        t->cards = arena_alloc(s->arena, (node->n_cards + 1) * sizeof *t->cards);
    }
    t->moved = 0;
    t->room = s->rooms[i];
    if (node->n_cards)
        memcpy(t->cards, node->cards, node->n_cards * sizeof *t->cards);
    return t;
}

/* Takes what the pod needs from the trial node, or gives it back. */
static void change_trial(struct defrag_trial *t, const struct defrag_item *item,
                         uint64_t chosen, int sign)
{
    const struct request *r = item->pod->request;
    bool whole = r->kind == REQUEST_CARDS;
    for (; chosen; chosen &= chosen - 1) {
        struct card *card = &t->cards[__builtin_ctzll(chosen)];
        int64_t mib = whole ? card->total_mib : r->mib_per_card;
        card->pods += (uint32_t)sign;
        card->promised_mib += sign * mib;
        card_add_core(&card->compute_promised, sign * (int64_t)r->core);
        card->whole = sign > 0 && whole;
        card->free_mib -= sign * mib;
    }
    t->moved += (uint32_t)sign;
    defrag_add_room(&t->room, item->room, -sign);
}

static bool place_from(struct placing *p, size_t k);

/* Tries a node for the pod k and places for all later ones. */
static bool try_node(struct placing *p, size_t k, size_t i)
{
    struct defrag_state *s = p->s;
    const struct defrag_item *item = p->items[k];
    const struct ledger_node *node = s->order[i];
    struct defrag_trial *t = s->trials[i];
    bool used = t && t->moved;
    struct select_view view;
    if (node->nominated || !defrag_has_room(used ? t->room : s->rooms[i], item->room))
        return false;
    if (used)
        select_view_cards(&view, node, t->cards, 0);
    else
        select_view(&view, node, NULL, SELECT_AS_IS);
    struct defrag_move *move = &p->moves[k];
    *move = (struct defrag_move){.pod = item->pod, .to = node};
    if ((item->pod->request->kind != REQUEST_NONE &&
         select_cards(&view, item->pod->request, SELECT_ALL_CARDS, &move->cards) !=
             FIT_YES) ||
        !s->world->may_run(s->world->ctx, item->pod, node))
        return false;
    t = trial_of(s, i);
    change_trial(t, item, move->cards, 1);
    bool done = place_from(p, k + 1);
    change_trial(t, item, move->cards, -1);
    return done;
}

static bool place_from(struct placing *p, size_t k)
{
    if (k == p->n)
        return true;
    for (size_t i = p->items[k]->from; i < p->s->n_order; i++) {
        if (++p->visits > VISITS_MAX) {
            p->s->bounded = true;
            return false;
        }
        if (p->s->order[i] != p->own && try_node(p, k, i))
            return true;
    }
    return false;
}

/* Finds a place for all removed items at the same time, and stores the moves. False: there is
 * none, or the search is too long (then s->bounded is set). */
static bool place_items(struct defrag_state *s, const struct ledger_node *own,
                        struct defrag_item *const *items, size_t n,
                        struct defrag_move *moves)
{
    struct placing p = {.s = s, .own = own, .items = items, .n = n, .moves = moves};
    bool done = place_from(&p, 0);
    uint64_t cost = p.visits / STEP_VISITS;
    s->steps -= cost < s->steps ? cost : s->steps;
    return done;
}

/* -- Which pods of one node leave --
 *
 * A depth-first search over the pods of a node, with a limit on their number: each pod
 * leaves or stays. A branch ends when more pods must leave than the limit allows. It also
 * ends when the request fits: if the pods that leave have no place then, more pods have
 * none either.
 */

enum {
    SEARCH_STEPS = 4096, /* of one node and one limit */
    STEP_WORK = 512,     /* visits of a pod on a card that cost one step */
};

struct set_search {
    struct defrag_state *s;
    struct defrag_node *node;
    size_t limit;
    struct defrag_item **leaving;
    size_t n;
    int64_t mib;
    unsigned steps;
    uint64_t cost;      /* of a step: 1, more on a node with many pods */
    struct card *cards; /* scratch; not on the stack, because the search is recursive */
    bool more_may_help; /* the limit ended a branch */
};

static int64_t left_on(const struct card *card)
{
    return card->total_mib - card->withheld_mib - card->promised_mib;
}

static void recompute_card(struct defrag_node *node, uint32_t c)
{
    struct card *card = &node->cards[c];
    int64_t left = left_on(card);
    card->whole = node->wholes[c] > 0;
    card->free_mib = card->state == CARD_AVAILABLE && !card->whole && left > 0 ? left : 0;
}

static void set_removed(struct defrag_node *node, struct defrag_item *item, bool removed)
{
    int sign = removed ? -1 : 1;
    item->removed = removed;
    defrag_add_room(&node->room, item->room, -sign);
    for (uint32_t c = 0; c < node->node->n_cards; c++) {
        if (item->mib[c] < 0)
            continue;
        struct card *card = &node->cards[c];
        card->promised_mib += sign * item->mib[c];
        card_add_core(&card->compute_promised,
                      sign * (int64_t)ledger_pod_core(item->pod, &node->node->cards[c]));
        card->pods += (uint32_t)sign;
        if (item->pod->request->kind == REQUEST_CARDS)
            node->wholes[c] += (uint32_t)sign;
        recompute_card(node, c);
    }
}

/* The fewest items of items[from..] that must leave so that the card takes its part of the
 * request; SIZE_MAX: not even all of them suffice. Items are largest first, but that order
 * is of all their cards, so the largest parts are searched for. */
static size_t least_of_card(const struct defrag_node *node, uint32_t c, size_t from,
                            const struct request *r)
{
    const struct card *card = &node->cards[c];
    int64_t missing = r->mib_per_card - left_on(card), parts[SCV_MAX_CARDS];
    bool all = r->kind == REQUEST_CARDS;
    size_t here = 0, wholes = 0, n = 0;
    if (card->state != CARD_AVAILABLE || !select_card_could_fit(card, r) ||
        (all && card->withheld_mib > 0))
        return SIZE_MAX;
    for (size_t i = from; i < node->n; i++) {
        const struct defrag_item *item = &node->items[i];
        if (item->removed || item->mib[c] < 0)
            continue;
        here++;
        if (item->pod->request->kind == REQUEST_CARDS) {
            wholes++;
            missing -= item->mib[c];
        } else if (n < SCV_MAX_CARDS) {
            size_t k = n++;
            for (; k > 0 && parts[k - 1] < item->mib[c]; k--)
                parts[k] = parts[k - 1];
            parts[k] = item->mib[c];
        } else {
            return 0; /* more parts than are kept: no bound */
        }
    }
    if (all)
        return here == card->pods ? here : SIZE_MAX;
    if (wholes < node->wholes[c])
        return SIZE_MAX;
    size_t least = wholes;
    for (size_t k = 0; k < n && missing > 0; k++, least++)
        missing -= parts[k];
    return missing > 0 ? SIZE_MAX : least;
}

/* The same for CPU, memory or pod slots: `field` is the offset in struct resources of what is
 * missing and of what each item gives back. */
static size_t least_of_room(const struct defrag_node *node, size_t from,
                            const struct resources *missing, size_t field)
{
    int64_t lacks = *(const int64_t *)((const char *)missing + field), most = 0, sum = 0;
    if (lacks <= 0)
        return 0;
    for (size_t i = from; i < node->n; i++) {
        const struct defrag_item *item = &node->items[i];
        int64_t gives = *(const int64_t *)((const char *)&item->room + field);
        if (item->removed)
            continue;
        sum += gives;
        most = gives > most ? gives : most;
    }
    return sum < lacks ? SIZE_MAX : (size_t)((lacks + most - 1) / most);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The fewest items of items[from..] that must leave at least; SIZE_MAX: no set helps. */
static size_t least_of(const struct defrag_state *s, const struct defrag_node *node,
                       size_t from)
{
    const struct request *r = s->target->pod.request;
    struct resources missing = s->target->room;
    size_t of_cards[SCV_MAX_CARDS], n = 0, sum = 0;
    for (uint32_t c = 0; c < node->node->n_cards; c++) {
        size_t least = least_of_card(node, c, from, r), k = n;
        if (least == SIZE_MAX)
            continue;
        for (; k > 0 && of_cards[k - 1] > least; k--)
            of_cards[k] = of_cards[k - 1];
        of_cards[k] = least;
        n++;
    }
    if (n < r->cards)
        return SIZE_MAX;
    for (size_t k = 0; k < r->cards; k++)
        sum += of_cards[k];
    defrag_add_room(&missing, node->room, -1);
    size_t least = (sum + node->widest - 1) / node->widest;
    static const size_t fields[] = {offsetof(struct resources, cpu_milli),
                                    offsetof(struct resources, memory),
                                    offsetof(struct resources, pods)};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        least = larger(least, least_of_room(node, from, &missing, fields[i]));
    return least;
}

/* Does the request fit without the removed items, and on which cards? Pods nominated to the node
 * go first. */
static bool fits_without(const struct defrag_state *s, const struct defrag_node *node,
                         struct card *cards, uint64_t *chosen)
{
    const struct defrag_target *t = s->target;
    struct select_view view;
    if (!defrag_has_room(node->room, t->room))
        return false;
    memcpy(cards, node->cards, node->node->n_cards * sizeof *cards);
    select_view_cards(&view, node->node, cards, 0);
    select_take_nominated(&view, &t->pod);
    return select_cards(&view, t->pod.request, SELECT_ALL_CARDS, chosen) == FIT_YES;
}

static bool is_better(const struct set_search *q)
{
    const struct defrag_state *s = q->s;
    return !s->found || q->n < s->best.n || (q->n == s->best.n && q->mib < s->best.mib);
}

/* Stores the plan if the items that leave have places, and it is better than the best. */
static void try_set(struct set_search *q, uint64_t chosen)
{
    struct defrag_state *s = q->s;
    cleanup_free struct defrag_move *moves = xcalloc(q->n + 1, sizeof *moves);
    if (!is_better(q) || !place_items(s, q->node->node, q->leaving, q->n, moves))
        return;
    s->found = true;
    s->best.node = q->node->node;
    s->best.cards = chosen;
    s->best.n = q->n;
    s->best.mib = q->mib;
    s->best.moves = arena_alloc(s->arena, (q->n + 1) * sizeof *moves);
    if (q->n)
        memcpy(s->best.moves, moves, q->n * sizeof *moves);
}

/* Decides items[i..]. */
static void search_sets(struct set_search *q, size_t i)
{
    struct defrag_state *s = q->s;
    if (q->steps == 0 || s->steps == 0) {
        s->bounded = q->more_may_help = true;
        return;
    }
    q->steps--;
    s->steps -= q->cost < s->steps ? q->cost : s->steps;
    if (s->found && q->n == s->best.n && q->mib >= s->best.mib)
        return;
    uint64_t chosen;
    if (fits_without(s, q->node, q->cards, &chosen)) {
        try_set(q, chosen);
        return;
    }
    size_t least = least_of(s, q->node, i);
    if (least == SIZE_MAX || i == q->node->n)
        return;
    if (q->n + larger(least, 1) > q->limit) {
        q->more_may_help = true;
        return;
    }
    struct defrag_item *item = &q->node->items[i];
    q->leaving[q->n++] = item;
    q->mib += item->all_mib;
    set_removed(q->node, item, true);
    search_sets(q, i + 1);
    set_removed(q->node, item, false);
    q->mib -= item->all_mib;
    q->n--;
    search_sets(q, i + 1);
}

/* Searches for sets of `m` items, and stores the best plan in s. False: no larger set can
 * help. */
static bool search_node(struct defrag_state *s, struct defrag_node *node, size_t m)
{
    uint32_t n_cards = node->node->n_cards;
    cleanup_free struct defrag_item **leaving = xcalloc(m + 1, sizeof(void *));
    cleanup_free struct card *cards = xcalloc(n_cards + 1, sizeof *cards);
    struct set_search q = {.s = s,
                           .node = node,
                           .limit = m,
                           .leaving = leaving,
                           .steps = SEARCH_STEPS,
                           .cost = 1 + node->n * n_cards / STEP_WORK,
                           .cards = cards};
    search_sets(&q, 0);
    return q.more_may_help;
}

static bool is_movable(struct defrag_state *s, const struct ledger_pod *pod)
{
    const struct request *r = pod->request;
    return (r->kind == REQUEST_NONE || r->kind == REQUEST_MEMORY ||
            r->kind == REQUEST_CARDS) &&
           !r->devices && !pod->other_cards && !pod->invalid_reason &&
           (r->kind == REQUEST_NONE || pod->n_shares > 0) &&
           s->world->may_move(s->world->ctx, pod);
}

static void add_item(struct defrag_state *s, struct defrag_node *out,
                     const struct ledger_pod *pod)
{
    const struct ledger_node *node = out->node;
    struct defrag_item item = {.pod = pod};
    uint32_t cards = 0;
    item.room = s->world->pod_room(s->world->ctx, pod);
    item.from = first_place(s, pod->request, item.room, node);
    if (item.from == s->n_order)
        return;
    int64_t *mib = arena_alloc(s->arena, (node->n_cards + 1) * sizeof *mib);
    for (uint32_t c = 0; c < node->n_cards; c++) {
        mib[c] = ledger_pod_mib(pod, &node->cards[c]);
        cards += mib[c] >= 0;
        item.all_mib += mib[c] > 0 ? mib[c] : 0;
    }
    item.mib = mib;
    out->widest = cards > out->widest ? cards : out->widest;
    out->items[out->n++] = item;
}

static int compare_items(const void *a, const void *b)
{
    const struct defrag_item *x = a, *y = b;
    if (x->all_mib != y->all_mib)
        return x->all_mib > y->all_mib ? -1 : 1;
    if (x->room.cpu_milli != y->room.cpu_milli)
        return x->room.cpu_milli > y->room.cpu_milli ? -1 : 1;
    return span_cmp(x->pod->uid, y->pod->uid);
}

/* Reads the items of a node and the least number of them that must leave. */
static void read_node(struct defrag_state *s, const struct ledger_node *node,
                      struct resources room, struct defrag_node *out)
{
    size_t n = 0;
    *out = (struct defrag_node){.node = node, .room = room, .widest = 1};
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        n++;
    out->items = arena_alloc(s->arena, (n + 1) * sizeof *out->items);
    out->cards = arena_alloc(s->arena, (node->n_cards + 1) * sizeof *out->cards);
    out->wholes = arena_zalloc(s->arena, (node->n_cards + 1) * sizeof *out->wholes);
    if (node->n_cards)
        memcpy(out->cards, node->cards, node->n_cards * sizeof *out->cards);
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        for (uint32_t c = 0; c < node->n_cards; c++)
            out->wholes[c] += pod->request->kind == REQUEST_CARDS &&
                              ledger_pod_mib(pod, &node->cards[c]) >= 0;
        if (is_movable(s, pod))
            add_item(s, out, pod);
    }
    qsort(out->items, out->n, sizeof *out->items, compare_items);
    out->least = least_of(s, out, 0);
}

/* -- The nodes, in the order of the fewest pods that must leave at least -- */

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
    cleanup_free struct listed *list = xcalloc(ledger_totals(l).nodes + 1, sizeof *list);
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
           select_fit(node, t->pod.request) != FIT_NEVER &&
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
        read_node(s, s->order[i], s->rooms[i], &candidates[n]);
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
        if (search_node(s, &candidates[i], m))
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
