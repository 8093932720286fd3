/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement_priv.h"

#include <assert.h>

#include "domain/keys.h"

/*
 * Reasons are made for every refused node of every filter call, so they are put together
 * from pieces, without printf.
 */

static void add_mib(struct buf *out, int64_t mib)
{
    buf_add_i64(out, mib);
    buf_adds(out, " MiB");
}

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

static void add_withheld(struct buf *out, const struct ledger_node *node)
{
    bool any = false;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state != CARD_AVAILABLE || card->withheld_mib == 0)
            continue;
        buf_adds(out, any ? ", " : "; in use from outside Kubernetes: ");
        add_mib(out, card->withheld_mib);
        buf_adds(out, " of ");
        add_card_name(out, card->index);
        any = true;
    }
}

static void add_out(struct buf *out, const struct ledger_node *node)
{
    add_cards(out, node, "; unhealthy: ", is_unhealthy);
    add_cards(out, node, "; taken out by ConfigMap: ", is_listed);
    add_cards(out, node, "; held through nvidia.com/gpu: ", is_held);
    add_cards(out, node, "; cards with the same UUID: ", is_duplicate);
    add_cards(out, node, "; taken whole: ", is_whole);
    add_withheld(out, node);
}

/* Foreign text; the reason stands in a JSON string as it is. */
static void add_plain(struct buf *out, struct span text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        buf_addc(out, c < ' ' || c == '"' || c == '\\' || c == 0x7f ? '?' : (char)c);
    }
}

static void add_whole(struct buf *out, const struct request *r)
{
    bool ours = r->kind == REQUEST_CARDS;
    buf_add_i64(out, r->cards);
    buf_adds(out, ours ? " whole card" : " card");
    buf_adds(out, r->cards == 1 ? "" : "s");
    buf_adds(out, ours ? "" : " through " KEY_NVIDIA_GPU);
    if (r->mib_per_card) {
        buf_adds(out, " of at least ");
        add_mib(out, r->mib_per_card);
    }
}

static void add_shared(struct buf *out, const struct request *r)
{
    add_mib(out, r->mib_per_card);
    if (r->cards == 1) {
        buf_adds(out, " on one card");
        return;
    }
    buf_adds(out, " on each of ");
    buf_add_i64(out, r->cards);
    buf_adds(out, " cards");
}

static void add_need(struct buf *out, const struct request *r)
{
    buf_adds(out, "needs ");
    if (r->kind == REQUEST_MEMORY)
        add_shared(out, r);
    else
        add_whole(out, r);
    if (r->models.n) {
        buf_adds(out, ", model ");
        add_plain(out, r->models);
    }
    if (r->clock_mhz) {
        buf_adds(out, ", memory clock ");
        buf_adds(out, r->clock_exact ? "" : "at least ");
        buf_add_i64(out, r->clock_mhz);
        buf_adds(out, " MHz");
    }
}

void reasons_init(struct reasons *r, const struct request *request)
{
    *r = (struct reasons){.request = request};
    /* In place, because a filter call allocates nothing: the longest text fits. */
    struct buf need = {.p = r->need, .cap = sizeof r->need};
    add_need(&need, request);
    assert(need.p == r->need);
    r->need_n = need.n;
}

static uint32_t count_on(const struct ledger_node *node, const struct request *r,
                         bool (*test)(const struct card *, const struct request *))
{
    return count_cards(node->cards, node->n_cards, r, test);
}

static int64_t clock_of(const struct card *card)
{
    return card->scv ? card->scv->spec.clock_mhz : 0;
}

/* Does the request tell the two cards apart? */
static bool is_alike(const struct card *a, const struct card *b, const struct request *r)
{
    return span_eq(a->model, b->model) && (!r->clock_mhz || clock_of(a) == clock_of(b));
}

static void add_kind(struct buf *out, const struct card *card, const struct request *r)
{
    if (card->model.n)
        add_plain(out, card->model);
    else
        buf_adds(out, "no model");
    if (!r->clock_mhz)
        return;
    buf_adds(out, " (");
    buf_add_i64(out, clock_of(card));
    buf_adds(out, " MHz)");
}

/* "2 x Tesla V100, 1 x Tesla T4": what there is, instead of what was asked for. */
static void add_kinds(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    const struct card *cards = node->cards;
    buf_adds(out, "; the node has ");
    for (uint32_t i = 0; i < node->n_cards; i++) {
        uint32_t before = 0, n = 0;
        for (uint32_t k = 0; k < node->n_cards; k++) {
            n += is_alike(&cards[k], &cards[i], r);
            before += k < i && is_alike(&cards[k], &cards[i], r);
        }
        if (before)
            continue;
        buf_adds(out, i ? ", " : "");
        buf_add_i64(out, n);
        buf_adds(out, " x ");
        add_kind(out, &cards[i], r);
    }
}

/* The size of the largest card that would do. */
static int64_t largest_of(const struct ledger_node *node, const struct request *r)
{
    int64_t largest = 0;
    if (!request_is_selective(r)) /* without a look at the cards */
        return node->largest_mib;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (card_suits(&node->cards[i], r) && node->cards[i].total_mib > largest)
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
    if (request_is_selective(r) && count_on(node, r, card_suits) < r->cards) {
        add_kinds(out, node, r);
        return;
    }
    /* Each in a call of its own: a choice between two texts is copied slowly. */
    if (request_is_selective(r))
        buf_adds(out, "; the largest of those has ");
    else if (r->cards == 1)
        buf_adds(out, "; the largest card has ");
    else
        buf_adds(out, "; too few cards are as large as that, the largest has ");
    add_mib(out, largest_of(node, r));
}

/* The healthy card with most free memory of those that would do. */
struct best {
    int32_t index; /* -1: none is in */
    int64_t free_mib, total_mib;
};

static struct best best_of(const struct ledger_node *node, const struct request *r)
{
    struct best best = {node->best_index, node->best_free_mib, node->best_total_mib};
    if (!request_is_selective(r)) /* without a look at the cards */
        return best;
    best.index = -1;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state == CARD_AVAILABLE && card_suits(card, r) &&
            (best.index < 0 || card->free_mib > best.free_mib))
            best = (struct best){card->index, card->free_mib, card->total_mib};
    }
    return best;
}

static void add_free(struct buf *out, const struct ledger_node *node,
                     const struct request *r)
{
    if (r->kind == REQUEST_CARDS)
        buf_adds(out, "; wholly free: ");
    else
        buf_adds(out, "; free: ");
    buf_add_i64(out, count_on(node, r, card_fits));
    buf_adds(out, " of ");
    buf_add_i64(out, count_on(node, r, card_could_fit));
    if (r->kind != REQUEST_DEVICES)
        return;
    add_cards(out, node, "; promised to pods: ", is_promised);
    if (node->claimed) {
        buf_adds(out, "; asked for by pods whose cards are not known yet: ");
        buf_add_i64(out, node->claimed);
    }
}

static void add_later(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    struct best best = best_of(node, r);
    if (best.index < 0) {
        buf_adds(out, any_card(node, is_held) ? "; no card is left"
                      : request_is_selective(r)  ? "; none of those is healthy"
                                              : "; no card is healthy");
    } else if (r->kind != REQUEST_MEMORY) {
        add_free(out, node, r);
    } else {
        if (r->cards > 1) {
            buf_adds(out, "; cards with that much free: ");
            buf_add_i64(out, count_on(node, r, card_fits));
        }
        buf_adds(out, "; most free: ");
        buf_add_i64(out, best.free_mib);
        buf_adds(out, " of ");
        add_mib(out, best.total_mib);
        buf_adds(out, " on ");
        add_card_name(out, best.index);
    }
    if (!node->all_available)
        add_out(out, node);
}

void placement_foreign_lease(struct buf *out, const struct ledger_node *node)
{
    const struct ledger_foreign_lease *foreign = ledger_node_info(node).foreign;
    if (!foreign)
        return;
    buf_adds(out, "; its Lease " KEY_LEASE_NAMESPACE "/");
    buf_add_span(out, node->name);
    buf_adds(out, " is not scv-agent's (holder: ");
    add_plain(out, foreign->holder.n ? foreign->holder : SPAN("none"));
    buf_adds(out, "; last renewed: ");
    add_plain(out, foreign->renewed.n ? foreign->renewed : SPAN("never"));
    buf_adds(out, "): delete it if another system has left it behind");
}

/* Why the node gives nothing out at all. False when it does. */
static bool add_state(struct buf *out, const struct ledger_node *node)
{
    switch (node->state) {
    case NODE_UNKNOWN:
        buf_adds(out, "nothing is known of this node's GPUs yet");
        return true;
    case NODE_SCV_MISSING:
        buf_adds(out, "its Scv object is missing, so nothing is known of its cards");
        placement_foreign_lease(out, node);
        return true;
    case NODE_SCV_DAMAGED:
        buf_adds(out, "its Scv object is damaged; the extender's log says where");
        return true;
    case NODE_SCV_EMPTY:
        buf_adds(out, "its Scv object lists no card");
        return true;
    case NODE_STALE:
        buf_adds(out, PLACEMENT_SILENT);
        buf_add_i64(out, node->stale_s);
        buf_adds(out, " s");
        placement_foreign_lease(out, node);
        return true;
    case NODE_NO_GPU:
        buf_adds(out, "the node has no GPU memory (no Scv object, no capacity)");
        return true;
    case NODE_NO_COUNT:
        buf_adds(out, "the node's capacity has aliyun.com/gpu-mem but no "
                      "aliyun.com/gpu-count");
        return true;
    case NODE_ALLOCATABLE_LOW:
        buf_adds(out, "allocatable GPU memory is below capacity, and no ConfigMap "
                      "unhealthy-gpu-");
        buf_add_span(out, node->name);
        buf_adds(out, " says which card is out");
        return true;
    case NODE_LIST_DAMAGED:
        buf_adds(out, "its ConfigMap unhealthy-gpu-");
        buf_add_span(out, node->name);
        buf_adds(out, " is not a comma list of card indexes");
        return true;
    case NODE_MISSING:
        buf_adds(out,
                 "the API server has no Node object of this name; only its Scv object "
                 "is left");
        return true;
    case NODE_USABLE:
        break;
    }
    return false;
}

void reasons_add(struct buf *out, const struct reasons *reasons,
                 const struct ledger_node *node, enum fit alone)
{
    const struct request *r = reasons->request;
    const char *why = NULL;
    /* In this order: where the node's cards come from is not in its first lines. */
    bool unknown = (request_is_selective(r) || r->kind == REQUEST_DEVICES) &&
                   node->source != SOURCE_SCV;
    if (!(unknown && r->kind == REQUEST_DEVICES) && add_state(out, node))
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
    buf_add(out, reasons->need, reasons->need_n);
    if (unknown) {
        buf_adds(out, "; models and clocks of its cards are not known: it has no Scv "
                      "object");
        return;
    }
    if (alone == FIT_YES)
        buf_adds(out, "; free, but kept for pods nominated to this node");
    else if (alone == FIT_NEVER)
        add_never(out, node, r);
    else
        add_later(out, node, r);
}

void placement_reason(struct buf *out, const struct ledger_node *node,
                      const struct request *request, enum fit alone)
{
    struct reasons reasons;
    reasons_init(&reasons, request);
    reasons_add(out, &reasons, node, alone);
}
