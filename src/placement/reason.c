/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement.h"

#include <assert.h>

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
    return card->out == CARD_UNHEALTHY;
}

static bool is_listed(const struct card *card)
{
    return card->out == CARD_LISTED;
}

static bool is_held(const struct card *card)
{
    return card->out == CARD_HELD;
}

static bool is_whole(const struct card *card)
{
    return card->out == CARD_IN && card->whole;
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
        if (card->out != CARD_IN || card->withheld_mib == 0)
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
    add_cards(out, node, "; taken whole: ", is_whole);
    add_withheld(out, node);
}

static void add_need(struct buf *out, const struct request *r)
{
    buf_adds(out, "needs ");
    if (r->kind == REQUEST_CARDS) {
        buf_add_i64(out, r->cards);
        buf_adds(out, r->cards == 1 ? " whole card" : " whole cards");
        return;
    }
    add_mib(out, r->mib_per_card);
    if (r->cards == 1) {
        buf_adds(out, " on one card");
        return;
    }
    buf_adds(out, " on each of ");
    buf_add_i64(out, r->cards);
    buf_adds(out, " cards");
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

static uint32_t count_fitting(const struct ledger_node *node, const struct request *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        n += node->cards[i].free_mib >= r->mib_per_card && node->cards[i].free_mib > 0;
    return n;
}

static void add_never(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    if (node->n_cards < r->cards) {
        buf_adds(out, "; the node has ");
        buf_add_i64(out, node->n_cards);
        buf_adds(out, node->n_cards == 1 ? " card" : " cards");
    } else if (r->cards == 1) {
        buf_adds(out, "; the largest card has ");
        add_mib(out, node->largest_mib);
    } else {
        buf_adds(out, "; too few cards are as large as that, the largest has ");
        add_mib(out, node->largest_mib);
    }
}

static void add_later(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    if (node->best_index < 0) {
        buf_adds(out,
                 any_card(node, is_held) ? "; no card is left" : "; no card is healthy");
    } else if (r->kind == REQUEST_CARDS) {
        buf_adds(out, "; wholly free: ");
        buf_add_i64(out, node->free_cards);
        buf_adds(out, " of ");
        buf_add_i64(out, node->n_cards);
    } else {
        if (r->cards > 1) {
            buf_adds(out, "; cards with that much free: ");
            buf_add_i64(out, count_fitting(node, r));
        }
        buf_adds(out, "; most free: ");
        buf_add_i64(out, node->best_free_mib);
        buf_adds(out, " of ");
        add_mib(out, node->best_total_mib);
        buf_adds(out, " on ");
        add_card_name(out, node->best_index);
    }
    if (!node->all_in)
        add_out(out, node);
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
        return true;
    case NODE_SCV_DAMAGED:
        buf_adds(out, "its Scv object is damaged; the extender's log says where");
        return true;
    case NODE_SCV_EMPTY:
        buf_adds(out, "its Scv object lists no card");
        return true;
    case NODE_SILENT:
        buf_adds(out, "scv-agent on this node has not been heard of for ");
        buf_add_i64(out, node->silent_s);
        buf_adds(out, " s");
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
    if (add_state(out, node))
        return;
    if (node->mode == NODE_MODE_WRONG)
        why = "node label gpushare/mode is neither memory nor card";
    else if (node->mode == NODE_MEMORY && r->kind == REQUEST_CARDS)
        why = "node label gpushare/mode=memory: no whole cards";
    else if (node->mode == NODE_CARDS && r->kind == REQUEST_MEMORY)
        why = "node label gpushare/mode=card: whole cards only";
    if (why) {
        buf_adds(out, why);
        return;
    }
    buf_add(out, reasons->need, reasons->need_n);
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
