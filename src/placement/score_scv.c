/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement_priv.h"
#include "placement/score_priv.h"

/*
 * Yoda-Scheduler's score of a node, with its weights:
 *
 *   bandwidth 1, memory clock 1, core clock 1, power limit 1, size 1, measured free 2
 *                       of the cards that the pod would get, on average
 *   measured free 2, not promised 3
 *                       of all healthy cards of the node together
 *
 * Each term is a share, from 0 to ONE: of the most that any card has of it that could be
 * given to the pod, on any of the nodes to choose from; the last two of the node's own
 * size. (Yoda divides the clock by the largest bandwidth, adds up all cards that would do
 * instead of those that are asked for, and counts sick ones.) What is not known counts as
 * nothing, for all nodes alike.
 */

enum { ONE = 1 << 20 };

enum term { BANDWIDTH, CLOCK, CORE, POWER, SIZE, FREE, TERMS };
static const int weights[TERMS] = {1, 1, 1, 1, 1, 2};
enum { NODE_FREE_WEIGHT = 2, NODE_LEFT_WEIGHT = 3 };

static int64_t measured_free(const struct card *card)
{
    if (card->used_mib < 0)
        return card->free_mib;
    return card->used_mib < card->total_mib ? card->total_mib - card->used_mib : 0;
}

static void terms_of(const struct card *card, int64_t terms[TERMS])
{
    static const struct scv_spec unknown;
    const struct scv_spec *spec = card->scv ? &card->scv->spec : &unknown;
    terms[BANDWIDTH] = spec->bandwidth;
    terms[CLOCK] = spec->clock_mhz;
    terms[CORE] = spec->core_mhz;
    terms[POWER] = spec->power_w;
    terms[SIZE] = card->total_mib;
    terms[FREE] = measured_free(card);
}

static int64_t share(int64_t part, int64_t whole)
{
    __extension__ typedef __int128 wide;
    return whole > 0 ? (int64_t)((wide)part * ONE / whole) : 0;
}

static void raise(int64_t most[TERMS], const struct ledger_node *node,
                  const struct request *r)
{
    int64_t terms[TERMS];
    for (uint32_t i = 0; i < node->n_cards; i++) {
        if (!card_fits(&node->cards[i], r))
            continue;
        terms_of(&node->cards[i], terms);
        for (int t = 0; t < TERMS; t++)
            most[t] = terms[t] > most[t] ? terms[t] : most[t];
    }
}

/* What the cards are worth that the pod would get, on average. */
static int64_t cards_worth(const struct ledger_node *node, const uint32_t *picks,
                           uint32_t n, const int64_t most[TERMS])
{
    int64_t sum = 0, terms[TERMS];
    for (uint32_t k = 0; k < n; k++) {
        terms_of(&node->cards[picks[k]], terms);
        for (int t = 0; t < TERMS; t++)
            sum += weights[t] * share(terms[t], most[t]);
    }
    return sum / n;
}

static int64_t node_worth(const struct ledger_node *node)
{
    int64_t size = 0, free = 0, left = 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state != CARD_AVAILABLE)
            continue;
        int64_t unpromised = card->total_mib - card->promised_mib;
        size += card->total_mib;
        free += measured_free(card);
        left += unpromised > 0 ? unpromised : 0;
    }
    return NODE_FREE_WEIGHT * share(free, size) + NODE_LEFT_WEIGHT * share(left, size);
}

int64_t score_scv(const struct score_call *call, int64_t *values)
{
    const struct request *r = call->pod->request;
    int64_t most[TERMS] = {0};
    uint32_t picks[REQUEST_MAX_CARDS];
    for (size_t i = 0; i < call->n && r->kind != REQUEST_NONE; i++) {
        score_ahead(call, i);
        if (call->nodes[i].node)
            raise(most, call->nodes[i].node, r);
    }
    for (size_t i = 0; i < call->n; i++) {
        const struct ledger_node *node = call->nodes[i].node;
        values[i] = SCORE_UNFIT;
        if (node && score_picks(node, r, picks))
            values[i] = cards_worth(node, picks, r->cards, most) + node_worth(node);
    }
    return 0; /* stretched as Yoda does it */
}
