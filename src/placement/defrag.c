/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/defrag.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/quantity.h"
#include "placement/dry_run.h"

/*
 * Plans of 0 moves are tried on all nodes, then plans of 1 move, and so on. A node takes
 * part from the number of pods that must leave it at least, until it turns out that no
 * larger set helps.
 */

/* The places of pods by capacity alone: indexes into the places. */
struct defrag_shape {
    const struct request *request;
    struct resources room;
    size_t first, second; /* the first two nodes with room; n_places: none */
};
enum { DEFRAG_SHAPES = 4096 };

/* A node to which pods can move. */
struct defrag_place {
    const struct ledger_node *node;
    int64_t free_mib;
    struct card *cards;    /* with the moved pods; NULL: none has moved here yet */
    struct resources room; /* beside the moved pods */
};

struct defrag_state {
    const struct defrag_world *world;
    const struct defrag_target *target;
    struct arena *arena;
    struct defrag_place *places; /* all nodes by rising free memory, then by name */
    size_t n_places;
    struct defrag_shape *shapes;
    size_t n_shapes;
    uint64_t steps; /* left */
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

/* A node under examination. The first n pods of the dry run are the items, which may leave:
 * largest first. */
struct defrag_node {
    struct dry_run run;
    size_t n;
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

/* A depth-first search over the pods of a node; see search_sets. */
struct set_search {
    struct defrag_state *s;
    struct defrag_node *node;
    size_t limit;
    struct dry_pod **leaving;
    size_t n;
    int64_t mib;
    unsigned steps;
    uint64_t cost;      /* of a step: 1, more on a node with many pods */
    bool more_may_help; /* the limit ended a branch */
    struct defrag_move *moves;
    unsigned visits; /* to place the pods that leave now */
    struct select_view
        view; /* scratch; not on the stack, because the searches are recursive */
};

static size_t next_place(const struct defrag_state *s, const struct request *r,
                         struct resources room, size_t i)
{
    const struct defrag_place *p = &s->places[i];
    for (; i < s->n_places; i++, p++)
        if (!p->node->nominated && defrag_has_room(p->room, room) &&
            select_fit(p->node, r) == FIT_YES)
            break;
    return i;
}

/* The first node, other than `own`, that has room for the pod, whatever its taints; n_places:
 * none. */
static size_t first_place(struct defrag_state *s, const struct request *r,
                          struct resources room, const struct ledger_node *own)
{
    size_t i = 0;
    while (i < s->n_shapes && (s->shapes[i].request != r || /* equal ones are shared */
                               !resources_equal(&s->shapes[i].room, &room)))
        i++;
    struct defrag_shape *shape = &s->shapes[i];
    if (i == s->n_shapes) {
        s->n_shapes += i < DEFRAG_SHAPES; /* the last one is not kept */
        *shape = (struct defrag_shape){.request = r, .room = room};
        shape->first = next_place(s, r, room, 0);
        shape->second = next_place(s, r, room, shape->first + 1);
    }
    bool is_own = shape->first < s->n_places && s->places[shape->first].node == own;
    return is_own ? shape->second : shape->first;
}

static bool place_from(struct set_search *q, size_t k);

/* Tries a node for the pod k and places for all later ones. */
static bool try_node(struct set_search *q, size_t k, struct defrag_place *place)
{
    struct defrag_state *s = q->s;
    const struct dry_pod *item = q->leaving[k];
    const struct request *r = item->pod->request;
    const struct ledger_node *node = place->node;
    struct select_view *view = &q->view;
    size_t bytes = node->n_cards * sizeof *place->cards;
    if (node->nominated || !defrag_has_room(place->room, item->room))
        return false;
    if (place->cards)
        select_view_cards(view, node, place->cards, 0);
    else
        select_view(view, node, NULL, SELECT_AS_IS);
    struct defrag_move *move = &q->moves[k];
    *move = (struct defrag_move){.pod = item->pod, .to = node};
    if ((r->kind != REQUEST_NONE &&
         select_cards(view, r, SELECT_ALL_CARDS, &move->cards) != FIT_YES) ||
        !s->world->may_run(s->world->ctx, item->pod, node))
        return false;
    cleanup_free struct card *before = xmalloc(bytes + 1);
    if (bytes)
        memcpy(before, view->cards, bytes);
    if (!place->cards)
        place->cards = memcpy(arena_alloc(s->arena, bytes), before, bytes);
    select_view_cards(view, node, place->cards, 0);
    select_take(view, r, move->cards);
    defrag_add_room(&place->room, item->room, -1);
    bool done = place_from(q, k + 1);
    defrag_add_room(&place->room, item->room, 1);
    memcpy(place->cards, before, bytes);
    return done;
}

/* Finds places for the pods k and later, and stores the moves. False: there are none, or the
 * search is too long (then bounded is set). */
static bool place_from(struct set_search *q, size_t k)
{
    struct defrag_state *s = q->s;
    if (k == q->n)
        return true;
    for (size_t i = q->leaving[k]->from; i < s->n_places; i++) {
        struct defrag_place *place = &s->places[i];
        if (++q->visits > VISITS_MAX) {
            s->bounded = true;
            return false;
        }
        if (place->node != q->node->run.node && try_node(q, k, place))
            return true;
    }
    return false;
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

/* The fewest items from `from` on that must leave so that the card takes its part of the
 * request; SIZE_MAX: not even all of them suffice. Items are largest first, but that order
 * is of all their cards, so the largest parts are searched for. */
static size_t least_of_card(const struct defrag_node *node, uint32_t c, size_t from,
                            const struct request *r)
{
    const struct card *card = &node->run.cards[c];
    int64_t missing = request_mib(r, card->total_mib, card->kind->kept_mib) -
                      (card->total_mib - card->withheld_mib - card->promised_mib),
            parts[SCV_MAX_CARDS];
    bool all = r->kind == REQUEST_CARDS;
    size_t least = 0, n = 0;
    if (card->state != CARD_AVAILABLE || !select_card_could_fit(card, r) ||
        (all && card->withheld_mib > 0))
        return SIZE_MAX;
    for (size_t i = 0; i < node->run.n; i++) {
        const struct dry_pod *p = &node->run.pods[i];
        int64_t mib = p->mib[c];
        size_t k = n;
        if (p->removed || mib < 0)
            continue;
        bool must = all || p->pod->request->kind == REQUEST_CARDS;
        if (i < from || i >= node->n) { /* it stays */
            if (must)
                return SIZE_MAX;
        } else if (must) {
            least++;
            missing -= mib;
        } else if (n == SCV_MAX_CARDS) {
            return 0; /* more parts than are kept: no bound */
        } else {
            for (; k > 0 && parts[k - 1] < mib; k--)
                parts[k] = parts[k - 1];
            parts[k] = mib;
            n++;
        }
    }
    for (size_t k = 0; k < n && missing > 0 && !all; k++, least++)
        missing -= parts[k];
    return missing > 0 && !all ? SIZE_MAX : least;
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
        const struct dry_pod *item = &node->run.pods[i];
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
    for (uint32_t c = 0; c < node->run.node->n_cards; c++) {
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

/* Stores the plan if the items that leave have places, and it is better than the best. */
static void try_set(struct set_search *q, uint64_t chosen)
{
    struct defrag_state *s = q->s;
    bool is_better =
        !s->found || q->n < s->best.n || (q->n == s->best.n && q->mib < s->best.mib);
    cleanup_free struct defrag_move *moves = xcalloc(q->n + 1, sizeof *moves);
    q->moves = moves;
    q->visits = 0;
    bool placed = is_better && place_from(q, 0);
    s->steps -= (uint64_t)quantity_at_most(q->visits / STEP_VISITS, (int64_t)s->steps);
    if (!placed)
        return;
    s->found = true;
    s->best.node = q->node->run.node;
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
    const struct select_pod *pod = &s->target->pod;
    uint64_t chosen;
    dry_run_view(&q->node->run, pod, &q->view);
    if (defrag_has_room(q->node->room, s->target->room) &&
        select_cards(&q->view, pod->request, SELECT_ALL_CARDS, &chosen) == FIT_YES) {
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
    struct dry_pod *item = &q->node->run.pods[i];
    q->leaving[q->n++] = item;
    q->mib += item->all_mib;
    item->removed = true;
    defrag_add_room(&q->node->room, item->room, 1);
    search_sets(q, i + 1);
    item->removed = false;
    defrag_add_room(&q->node->room, item->room, -1);
    q->mib -= item->all_mib;
    q->n--;
    search_sets(q, i + 1);
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

static int compare_items(const void *a, const void *b)
{
    const struct dry_pod *x = a, *y = b;
    return (y->may_leave - x->may_leave)
               ?: quantity_compare(y->all_mib, x->all_mib)
               ?: quantity_compare(y->room.cpu_milli, x->room.cpu_milli)
               ?: span_cmp(x->pod->uid, y->pod->uid);
}

/* -- The nodes, in the order of the fewest pods that must leave at least -- */

enum { STEPS_MAX = 1 << 20 }; /* of all searches: about a second */

static int compare_places(const void *a, const void *b)
{
    const struct defrag_place *x = a, *y = b;
    return quantity_compare(x->free_mib, y->free_mib)
               ?: span_cmp(x->node->name, y->node->name);
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
    return (x->least > y->least) - (x->least < y->least)
               ?: span_cmp(x->run.node->name, y->run.node->name);
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
        cleanup_free struct dry_pod **leaving = xcalloc(m + 1, sizeof *leaving);
        struct defrag_node *node = &candidates[i];
        struct set_search q = {.s = s,
                               .node = node,
                               .limit = m,
                               .leaving = leaving,
                               .steps = SEARCH_STEPS,
                               .cost = 1 + node->n * node->run.node->n_cards / STEP_WORK};
        search_sets(&q, 0);
        more |= q.more_may_help;
        if (!q.more_may_help) /* no larger set can help */
            node->least = SIZE_MAX;
    }
    return more;
}

bool defrag_find(const struct defrag_world *world, const struct defrag_target *target,
                 struct arena *a, struct defrag_plan *plan)
{
    struct defrag_state s = {
        .world = world, .target = target, .arena = a, .steps = STEPS_MAX};
    const struct ledger *l = world->ledger;
    s.places = arena_zalloc(a, (ledger_totals(l).nodes + 1) * sizeof *s.places);
    s.shapes = arena_alloc(a, (DEFRAG_SHAPES + 1) * sizeof *s.shapes);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        struct defrag_place *place = &s.places[s.n_places];
        place->node = ledger_node_at(l, i);
        if (!place->node)
            continue;
        for (uint32_t c = 0; c < place->node->n_cards; c++)
            place->free_mib += place->node->cards[c].free_mib;
        place->room = world->node_room(world->ctx, place->node);
        s.n_places++;
    }
    qsort(s.places, s.n_places, sizeof *s.places, compare_places);
    cleanup_free struct defrag_node *candidates =
        xcalloc(s.n_places + 1, sizeof *candidates);
    size_t n = 0;
    for (size_t i = 0; i < s.n_places; i++) {
        const struct defrag_place *place = &s.places[i];
        const struct select_pod nobody = {.priority = INT64_MIN};
        struct defrag_node *node = &candidates[n];
        struct select_view view;
        if (!is_candidate(&s, place->node))
            continue;
        *node = (struct defrag_node){.room = place->room, .widest = 1};
        dry_run_begin(&node->run, place->node, &nobody, false, a);
        for (size_t k = 0; k < node->run.n; k++) {
            struct dry_pod *p = &node->run.pods[k];
            if (!is_movable(&s, p->pod))
                continue;
            p->room = world->pod_room(world->ctx, p->pod);
            p->from = first_place(&s, p->pod->request, p->room, place->node);
            p->may_leave = p->from < s.n_places;
            node->n += p->may_leave;
            if (p->may_leave && p->cards > node->widest)
                node->widest = p->cards;
        }
        qsort(node->run.pods, node->run.n, sizeof *node->run.pods, compare_items);
        dry_run_view(&node->run, &nobody, &view);
        node->least = least_of(&s, node, 0);
        n += node->least != SIZE_MAX;
    }
    qsort(candidates, n, sizeof *candidates, compare_candidates);
    size_t m = n ? candidates[0].least : 0;
    while (!s.found && s.steps && search_all(&s, candidates, n, m))
        m++;
    if (s.steps == 0)
        s.bounded = true;
    *plan = s.best;
    plan->bounded = s.bounded;
    return s.found;
}
