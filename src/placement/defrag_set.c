/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/defrag_priv.h"

#include <stdlib.h>

#include "base/mem.h"

/*
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
        card_add_core(&card->core_promised,
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
    if (card->state != CARD_AVAILABLE || !placement_card_could_fit(card, r) ||
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

/* The same for CPU, memory or pod slots: `missing` of what each item gives back. */
static size_t least_of_room(const struct defrag_node *node, size_t from, int64_t missing,
                            size_t field)
{
    int64_t most = 0, sum = 0;
    if (missing <= 0)
        return 0;
    for (size_t i = from; i < node->n; i++) {
        const struct defrag_item *item = &node->items[i];
        int64_t gives = *(const int64_t *)((const char *)&item->room + field);
        if (item->removed)
            continue;
        sum += gives;
        most = gives > most ? gives : most;
    }
    return sum < missing ? SIZE_MAX : (size_t)((missing + most - 1) / most);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The fewest items of items[from..] that must leave at least; SIZE_MAX: no set helps. */
static size_t least_of(const struct defrag_state *s, const struct defrag_node *node,
                       size_t from)
{
    const struct request *r = s->target->request;
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
#define FIELD(f)                                                                         \
    least = larger(least,                                                                \
                   least_of_room(node, from, missing.f, offsetof(struct resources, f)))
    FIELD(cpu_milli);
    FIELD(memory);
    FIELD(pods);
#undef FIELD
    return least;
}

/* Does the request fit without the removed items? Pods nominated to the node go first. */
static bool fits(const struct defrag_state *s, const struct defrag_node *node,
                 struct card *cards)
{
    uint64_t claimed = 0;
    if (!defrag_has_room(node->room, s->target->room))
        return false;
    memcpy(cards, node->cards, node->node->n_cards * sizeof *cards);
    if (node->node->nominated)
        claimed = placement_take_nominated(node->node, cards, s->target->priority,
                                           s->target->uid, NULL);
    return placement_fit_cards(node->node, cards, claimed, s->target->request) == FIT_YES;
}

static bool is_better(const struct set_search *q)
{
    const struct defrag_state *s = q->s;
    return !s->found || q->n < s->best.n || (q->n == s->best.n && q->mib < s->best.mib);
}

static void store_plan(struct set_search *q, const struct card *cards,
                       const struct defrag_move *moves)
{
    struct defrag_state *s = q->s;
    struct ledger_node copy = *q->node->node;
    copy.cards = (struct card *)cards;
    copy.brief.valid = false;
    s->found = true;
    s->best.node = q->node->node;
    s->best.n = q->n;
    s->best.mib = q->mib;
    placement_choose(&copy, s->target->request, s->best.picks);
    s->best.moves = arena_alloc(s->arena, (q->n + 1) * sizeof *moves);
    if (q->n)
        memcpy(s->best.moves, moves, q->n * sizeof *moves);
}

static void try_set(struct set_search *q, const struct card *cards)
{
    cleanup_free struct defrag_move *moves = xcalloc(q->n + 1, sizeof *moves);
    if (is_better(q) && defrag_place(q->s, q->node->node, q->leaving, q->n, moves))
        store_plan(q, cards, moves);
}

/* Decides items[i..]. */
static void search(struct set_search *q, size_t i)
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
    if (fits(s, q->node, q->cards)) {
        try_set(q, q->cards);
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
    search(q, i + 1);
    set_removed(q->node, item, false);
    q->mib -= item->all_mib;
    q->n--;
    search(q, i + 1);
}

bool defrag_node_search(struct defrag_state *s, struct defrag_node *node, size_t m)
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
    search(&q, 0);
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
    item.from = defrag_first_place(s, pod->request, item.room, node);
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

void defrag_node_read(struct defrag_state *s, const struct ledger_node *node,
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
