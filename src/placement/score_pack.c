/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/score_priv.h"

/* Free memory after the placement on the cards that the pod gets, relative to their size,
 * or what is not free. For whole cards: the node's free cards, relative to all its cards. */
static int64_t value_of(const struct ledger_node *node, const struct request *r,
                        bool emptiest)
{
    uint32_t picks[REQUEST_MAX_CARDS];
    int64_t left = 0, total = 0;
    if (!score_picks(node, r, picks))
        return SCORE_NO_FIT;
    if (r->kind != REQUEST_MEMORY) {
        left = node->free_cards > r->cards ? node->free_cards - r->cards : 0;
        total = node->n_cards;
    } else {
        for (uint32_t k = 0; k < r->cards; k++) {
            left += node->cards[picks[k]].free_mib - r->mib_per_card;
            total += node->cards[picks[k]].total_mib;
        }
    }
    /* Rounded up: the points of a whole tenth must not be less. */
    int64_t empty =
        (int64_t)(((__extension__(__int128) left << SCORE_SHIFT) + total - 1) / total);
    return emptiest ? empty : (INT64_C(1) << SCORE_SHIFT) - empty;
}

void score_pack(const struct score_call *call, bool emptiest, int64_t *values)
{
    const struct request *r = call->pod->request;
    for (size_t i = 0; i < call->n; i++) {
        const struct ledger_node *node = call->nodes[i].node;
        score_prefetch_cards(call, i);
        values[i] = node ? value_of(node, r, emptiest) : SCORE_NO_FIT;
    }
}
