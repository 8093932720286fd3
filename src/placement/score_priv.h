/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/score.h"

/*
 * What the policies have in common. A policy says what a node is worth, as a number of
 * its own that is larger for a better node; score.c makes points of that.
 */

/* The node cannot take the pod, or is not known. */
#define SCORE_UNFIT INT64_MIN

struct score_call {
    const struct score_pod *pod;
    const struct mix *mix;
    const struct score_node *nodes;
    size_t n;
    struct frag *frag; /* to work with */
};

/* The cards that the pod would get; for nvidia.com/gpu, where the kubelet chooses, the
 * first that will do. False: it does not fit, or asks for nothing. */
bool score_picks(const struct ledger_node *node, const struct request *r,
                 uint32_t picks[REQUEST_MAX_CARDS]);

/* Most of a look at thousands of nodes is waiting for their cards: those of a node
 * further on are asked for while one is looked at. */
static inline void score_ahead(const struct score_call *call, size_t i)
{
    enum { AHEAD = 3 };
    const struct ledger_node *node =
        i + AHEAD < call->n ? call->nodes[i + AHEAD].node : NULL;
    if (!node)
        return;
    const char *cards = (const char *)node->cards;
    for (size_t at = 0; at < node->n_cards * sizeof *node->cards; at += LEDGER_LINE)
        __builtin_prefetch(cards + at);
}

/* Each fills values[0..n). Returned is the least range that is worth all points. */
void score_pack(const struct score_call *call, bool emptiest, int64_t *values);
int64_t score_scv(const struct score_call *call, int64_t *values);
int64_t score_fgd(const struct score_call *call, int64_t *values);
