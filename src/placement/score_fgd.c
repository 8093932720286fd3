/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/score_priv.h"

/*
 * The fragmentation gradient: how much less memory the mix could use on the node if the
 * pod went there. By itself it says nothing about nodes that look alike, and does not
 * prefer one that is in use already; therefore two more terms, both small beside a card:
 *
 *   fullness  what of the node is in use afterwards
 *   balance   how far what is left of its CPU and what is left of its memory are apart,
 *             squared: who has run out of one strands the other (where CPU is known)
 *
 * What they weigh was measured (docs/placement.md).
 */

enum {
    FULLNESS = 20, /* a full node is worth a 20th of a card more than an empty one */
    BALANCE = 8,   /* only memory left, or only CPU, is worth an 8th of a card less */
};

/* A part of a whole, << FRAG_SHIFT. */
static int64_t share(int64_t part, int64_t whole)
{
    return whole > 0 ? (part << FRAG_SHIFT) / whole : 0;
}

/* How large a card is, among the nodes to choose from. */
static int64_t usual_card(const struct score_call *call)
{
    int64_t sum = 0, n = 0;
    for (size_t i = 0; i < call->n; i++) {
        const struct ledger_node *node = call->nodes[i].node;
        if (!node || node->largest_mib <= 0)
            continue;
        sum += frag_tame(node->largest_mib);
        n++;
    }
    return n ? sum / n : 0;
}

static int64_t size_of(const struct ledger_node *node)
{
    int64_t size = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        size += node->cards[i].state == CARD_AVAILABLE ? frag_tame(node->cards[i].total_mib) : 0;
    return size;
}

/* Fullness and balance, in MiB << FRAG_SHIFT. */
static int64_t shape_of(const struct score_node *at, const struct frag_node *then,
                        int64_t size, int64_t card)
{
    int64_t free = 0;
    for (uint32_t i = 0; i < then->n; i++)
        free += then->free_mib[i];
    int64_t memory = share(free, size);
    if (!at->cpu_milli)
        return -(card * memory / FULLNESS);
    int64_t cpu = share(then->cpu_free, frag_tame(at->cpu_milli));
    int64_t apart = size > 0 ? cpu - memory : 0;
    return -(card * (cpu + memory) / 2 / FULLNESS) -
           card * (apart * apart >> FRAG_SHIFT) / BALANCE;
}

static int64_t value_of(const struct score_call *call, const struct score_node *at,
                        int64_t card)
{
    const struct request *r = call->pod->request;
    uint32_t picks[REQUEST_MAX_CARDS];
    struct frag_node node;
    int64_t mib = r->kind == REQUEST_MEMORY ? r->mib_per_card : INT64_MAX;
    uint32_t n = r->kind == REQUEST_NONE ? 0 : r->cards;
    if (!at->node || (n ? !score_picks(at->node, r, picks) : !at->cpu_milli))
        return SCORE_UNFIT;
    frag_look(at->node, at->cpu_free, &node);
    int64_t drop =
        frag_take(call->frag, &node, picks, n, mib, frag_tame(call->pod->cpu_milli));
    return drop + shape_of(at, &node, size_of(at->node), card);
}

/* Nodes that are closer to each other than a full one is to an empty one are not pulled
 * apart: kube-scheduler's plugins are to have their say about those. */
int64_t score_fgd(const struct score_call *call, int64_t *values)
{
    int64_t card = usual_card(call);
    frag_prepare(call->frag, call->mix);
    for (size_t i = 0; i < call->n; i++) {
        score_ahead(call, i);
        values[i] = value_of(call, &call->nodes[i], card);
    }
    return (card << FRAG_SHIFT) / FULLNESS;
}
