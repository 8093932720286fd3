/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/reason_priv.h"

#include "domain/keys.h"

/*
 * A reason is written for every node that a filter call rejects, so reasons are
 * concatenated from pieces, without printf.
 */

static void add_card_name(struct buf *out, int32_t index)
{
    buf_adds(out, "GPU");
    buf_add_i64(out, index);
}

static bool is_unhealthy(const struct card *card)
{
    return card->state == CARD_UNHEALTHY;
}

static bool is_listed(const struct card *card)
{
    return card->state == CARD_LISTED;
}

static bool is_held(const struct card *card)
{
    return card->state == CARD_HELD;
}

static bool is_duplicate(const struct card *card)
{
    return card->state == CARD_DUPLICATE;
}

static bool is_promised(const struct card *card)
{
    return card->state == CARD_AVAILABLE && card->pods > 0;
}

static bool is_whole(const struct card *card)
{
    return card->state == CARD_AVAILABLE && card->whole;
}

static void add_cards(struct buf *out, const struct ledger_node *node, const char *what,
                      bool (*test)(const struct card *))
{
    bool any = false;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        if (!test(&node->cards[i]))
            continue;
        buf_adds(out, any ? "," : what);
        add_card_name(out, node->cards[i].index);
        any = true;
    }
}

static bool any_card(const struct ledger_node *node, bool (*test)(const struct card *))
{
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (test(&node->cards[i]))
            return true;
    return false;
}

static int64_t overuse_of(const struct card *card)
{
    return card->overuse_mib;
}

/* Reservations end within seconds: the pod is likely to fit soon. */
static int64_t reserved_of(const struct card *card)
{
    return card->reserved_mib;
}

/* The available cards that have such an amount. */
static void add_amounts(struct buf *out, const struct ledger_node *node, const char *what,
                        int64_t (*amount)(const struct card *))
{
    bool any = false;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state != CARD_AVAILABLE || amount(card) == 0)
            continue;
        buf_adds(out, any ? ", " : what);
        reason_add_mib(out, amount(card));
        buf_adds(out, " on ");
        add_card_name(out, card->index);
        any = true;
    }
}

static void add_excluded(struct buf *out, const struct ledger_node *node)
{
    add_cards(out, node, "; unhealthy: ", is_unhealthy);
    add_cards(out, node, "; excluded by ConfigMap: ", is_listed);
    add_cards(out, node, "; allocated through nvidia.com/gpu: ", is_held);
    add_cards(out, node, "; duplicate UUID: ", is_duplicate);
    add_cards(out, node, "; promised as whole cards: ", is_whole);
    add_amounts(out, node, "; used outside Kubernetes: ", card_external_mib);
    add_amounts(out, node, "; used by pods beyond their promises: ", overuse_of);
    add_amounts(out, node, "; reserved for pods that are being bound: ", reserved_of);
}

/* Of a node whose cards are all available, but have too little free memory: as add_later,
 * in one piece. */
static void add_most_free(struct buf *out, const struct prepared_reason *r,
                          const struct ledger_node *node)
{
    enum { WORDS = 32 };
    buf_reserve(out, r->most_free_n + 3 * STR_U64 + WORDS);
    char *p = mempcpy(out->p + out->n, r->need, r->most_free_n);
    p = str_put_u64(p, (uint64_t)node->best_free_mib);
    p = mempcpy(p, " of ", 4);
    p = str_put_u64(p, (uint64_t)node->best_total_mib);
    p = mempcpy(p, " MiB on GPU", 11);
    p = str_put_u64(p, (uint64_t)node->best_index);
    *p = '\0';
    out->n = (size_t)(p - out->p);
}

static uint32_t count_on(const struct ledger_node *node, const struct request *r,
                         bool (*test)(const struct card *, const struct request *))
{
    return placement_count_cards(node->cards, node->n_cards, r, test);
}

/* Are the two cards of the same kind as far as the request is concerned? */
static bool is_same_kind(const struct card *a, const struct card *b,
                         const struct request *r)
{
    return span_eq(a->model, b->model) &&
           (!r->clock_mhz || card_clock_mhz(a) == card_clock_mhz(b));
}

static void add_kind(struct buf *out, const struct card *card, const struct request *r)
{
    if (card->model.n)
        reason_add_plain(out, card->model);
    else
        buf_adds(out, "unknown model");
    if (!r->clock_mhz)
        return;
    buf_adds(out, " (");
    buf_add_i64(out, card_clock_mhz(card));
    buf_adds(out, " MHz)");
}

/* "2 x Tesla V100, 1 x Tesla T4": the cards of the node. */
static void add_kinds(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    const struct card *cards = node->cards;
    buf_adds(out, "; the node has ");
    for (uint32_t i = 0; i < node->n_cards; i++) {
        uint32_t before = 0, n = 0;
        for (uint32_t k = 0; k < node->n_cards; k++) {
            n += is_same_kind(&cards[k], &cards[i], r);
            before += k < i && is_same_kind(&cards[k], &cards[i], r);
        }
        if (before)
            continue;
        buf_adds(out, i ? ", " : "");
        buf_add_i64(out, n);
        buf_adds(out, " x ");
        add_kind(out, &cards[i], r);
    }
}

/* The size of the largest card that suits the request. */
static int64_t largest_suitable(const struct ledger_node *node, const struct request *r)
{
    int64_t largest = 0;
    if (!request_is_selective(r)) /* without reading the cards */
        return node->largest_mib;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (placement_card_suits(&node->cards[i], r) &&
            node->cards[i].total_mib > largest)
            largest = node->cards[i].total_mib;
    return largest;
}

static void add_never(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    if (node->n_cards < r->cards && !request_is_selective(r)) {
        buf_adds(out, "; the node has ");
        buf_add_i64(out, node->n_cards);
        buf_adds(out, node->n_cards == 1 ? " card" : " cards");
        return;
    }
    if (request_is_selective(r) && count_on(node, r, placement_card_suits) < r->cards) {
        add_kinds(out, node, r);
        return;
    }
    /* One call per literal: the compiler copies a literal of known length faster. */
    if (request_is_selective(r))
        buf_adds(out, "; the largest such card has ");
    else if (r->cards == 1)
        buf_adds(out, "; the largest card has ");
    else
        buf_adds(out, "; too few cards of that size; the largest has ");
    reason_add_mib(out, largest_suitable(node, r));
}

/* The healthy card with most free memory among those that suit the request. */
struct best {
    int32_t index; /* -1: none is healthy */
    int64_t free_mib, total_mib;
};

static struct best best_of(const struct ledger_node *node, const struct request *r)
{
    struct best best = {node->best_index, node->best_free_mib, node->best_total_mib};
    if (!request_is_selective(r)) /* without reading the cards */
        return best;
    best.index = -1;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state == CARD_AVAILABLE && placement_card_suits(card, r) &&
            (best.index < 0 || card->free_mib > best.free_mib))
            best = (struct best){card->index, card->free_mib, card->total_mib};
    }
    return best;
}

static void add_free(struct buf *out, const struct ledger_node *node,
                     const struct request *r)
{
    buf_adds(out, "; free cards: ");
    buf_add_i64(out, count_on(node, r, placement_card_fits));
    buf_adds(out, " of ");
    buf_add_i64(out, count_on(node, r, placement_card_could_fit));
    if (r->kind != REQUEST_DEVICES)
        return;
    add_cards(out, node, "; promised to pods: ", is_promised);
    if (node->claimed) {
        buf_adds(out, "; requested by pods whose cards are not known yet: ");
        buf_add_i64(out, node->claimed);
    }
}

/* Of the cards with enough memory, the one with most free compute. */
static void add_core(struct buf *out, const struct ledger_node *node,
                     const struct request *r)
{
    const struct card *best = NULL;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state == CARD_AVAILABLE && card->free_mib >= r->mib_per_card &&
            placement_card_suits(card, r) &&
            (!best || card_core_left(card) > card_core_left(best)))
            best = card;
    }
    if (!best)
        return;
    buf_adds(out, "; most free compute beside that memory: ");
    reason_add_percent(out, card_core_left(best));
    buf_adds(out, " on ");
    add_card_name(out, best->index);
}

static void add_later(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    struct best best = best_of(node, r);
    if (best.index < 0) {
        buf_adds(out, any_card(node, is_held)   ? "; no card is available"
                      : request_is_selective(r) ? "; no such card is healthy"
                                                : "; no card is healthy");
    } else if (r->kind != REQUEST_MEMORY) {
        add_free(out, node, r);
    } else {
        if (r->cards > 1) {
            buf_adds(out, r->core ? "; cards with enough free memory and compute: "
                                  : "; cards with enough free memory: ");
            buf_add_i64(out, count_on(node, r, placement_card_fits));
        }
        buf_adds(out, REASON_MOST_FREE);
        buf_add_i64(out, best.free_mib);
        buf_adds(out, " of ");
        reason_add_mib(out, best.total_mib);
        buf_adds(out, " on ");
        add_card_name(out, best.index);
        if (r->core)
            add_core(out, node, r);
    }
    if (!node->all_available)
        add_excluded(out, node);
}

void reason_add_prepared(struct buf *out, const struct prepared_reason *prepared,
                         const struct ledger_node *node, enum fit alone)
{
    const struct request *r = prepared->request;
    const char *why = NULL;
    if (prepared->most_free_n && alone == FIT_LATER && node->state == NODE_USABLE &&
        placement_mode_allows(node, r) && node->all_available && node->best_index >= 0) {
        add_most_free(out, prepared, node);
        return;
    }
    /* In this order, because node->source is not in the node's first cache lines. */
    bool unknown = (request_is_selective(r) || r->kind == REQUEST_DEVICES) &&
                   node->source != SOURCE_SCV;
    if (!(unknown && r->kind == REQUEST_DEVICES) && reason_add_state(out, node))
        return;
    if (node->mode == NODE_MODE_WRONG)
        why = "node label gpushare/mode is neither memory nor card";
    else if (node->mode == NODE_MEMORY && r->kind == REQUEST_CARDS)
        why = "node label gpushare/mode=memory: no whole cards";
    else if (node->mode == NODE_CARDS && r->kind == REQUEST_MEMORY)
        why = "node label gpushare/mode=card: whole cards only";
    if (why && r->kind != REQUEST_DEVICES) {
        buf_adds(out, why);
        return;
    }
    buf_add(out, prepared->need, prepared->need_n);
    if (unknown) {
        buf_adds(out, "; card models and clocks are unknown: the node has no Scv "
                      "object");
        return;
    }
    if (r->core && !node->has_core) {
        buf_adds(out, "; the node's device plugin does not offer " KEY_GPU_CORE);
        return;
    }
    if (alone == FIT_YES)
        buf_adds(out, "; free, but reserved for pods nominated to this node");
    else if (alone == FIT_NEVER)
        add_never(out, node, r);
    else
        add_later(out, node, r);
}

void reason_add(struct buf *out, const struct ledger_node *node,
                const struct request *request, enum fit alone)
{
    struct prepared_reason prepared;
    reason_prepare(&prepared, request);
    reason_add_prepared(out, &prepared, node, alone);
}
