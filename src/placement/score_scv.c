/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement_priv.h"
#include "placement/score_priv.h"

/*
 * Yoda-Scheduler's score of a node, with its weights:
 *
 *   bandwidth 1, memory clock 1, core clock 1, power limit 1, size 1, measured free 2
 *                       average over the cards that the pod would get
 *   measured free 2, not promised 3
 *                       sum over all healthy cards of the node
 *
 * Each term is a share from 0 to ONE. The first six are relative to the maximum over the
 * cards of all candidate nodes that fit the pod, the last two to the node's own size.
 * (Yoda divides the clock by the largest bandwidth, sums over all cards that fit instead
 * of the requested ones, and counts unhealthy cards.) An unknown value counts as 0 on
 * every node.
 */

enum { ONE = 1 << 20 };

enum term { BANDWIDTH, CLOCK, CORE, POWER, SIZE, FREE, TERMS };
_Static_assert(TERMS == (int)SCORE_TERMS, "one maximum per term");
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
    const struct scv_spec *spec = card->scv ? &card->scv->model->spec : &unknown;
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

/* Raises the maximum of each term to that of the node's cards. */
static void raise_maximum(int64_t most[TERMS], const struct ledger_node *node,
                          const struct request *r)
{
    int64_t terms[TERMS];
    for (uint32_t i = 0; i < node->n_cards; i++) {
        if (!placement_card_fits(&node->cards[i], r))
            continue;
        terms_of(&node->cards[i], terms);
        for (int t = 0; t < TERMS; t++)
            most[t] = terms[t] > most[t] ? terms[t] : most[t];
    }
}

/* The value of the cards that the pod would get, on average. */
static int64_t value_of_cards(const struct ledger_node *node, const uint32_t *picks,
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

static int64_t value_of_node(const struct ledger_node *node)
{
    int64_t size = 0, free = 0, left = 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state != CARD_AVAILABLE)
            continue;
        int64_t unpromised = card->total_mib - card->promised_mib - card->reserved_mib;
        size += card->total_mib;
        free += measured_free(card);
        left += unpromised > 0 ? unpromised : 0;
    }
    return NODE_FREE_WEIGHT * share(free, size) + NODE_LEFT_WEIGHT * share(left, size);
}

void score_survey_terms(const struct score_call *call, struct score_survey *survey)
{
    const struct request *r = call->pod->request;
    for (size_t i = 0; i < call->n && r->kind != REQUEST_NONE; i++) {
        score_prefetch_cards(call, i);
        if (call->nodes[i].node)
            raise_maximum(survey->most, call->nodes[i].node, r);
    }
}

void score_scv(const struct score_call *call, int64_t *values)
{
    const struct request *r = call->pod->request;
    uint32_t picks[REQUEST_MAX_CARDS];
    for (size_t i = 0; i < call->n; i++) {
        const struct ledger_node *node = call->nodes[i].node;
        values[i] = SCORE_NO_FIT;
        if (node && score_picks(node, r, picks))
            values[i] = value_of_cards(node, picks, r->cards, call->survey->most) +
                        value_of_node(node);
    }
}
