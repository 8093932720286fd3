/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/score.h"

/*
 * Shared by the policies. A policy gives each node a value on a scale of its own, larger
 * for a better node; score.c turns values into points.
 */

/* The value of a node that is unknown or cannot take the pod. */
#define SCORE_NO_FIT INT64_MIN
/* Of values from 0 to 1 << SCORE_SHIFT. */
enum { SCORE_SHIFT = 40 };

struct score_call {
    const struct score_pod *pod;
    const struct score_survey *survey; /* of all nodes */
    const struct score_node *nodes;    /* those to rate */
    size_t n;
    struct frag *frag; /* prepared for the mix */
};

/* The cards that the pod would get. For nvidia.com/gpu, where the kubelet chooses: the
 * first ones that fit. False: the pod does not fit, or requests no GPU. */
bool score_picks(const struct ledger_node *node, const struct request *r,
                 uint32_t picks[REQUEST_MAX_CARDS]);

/* The same for a request of memory on one card, from the brief of a node where it fits. */
uint32_t score_pick_one(const struct ledger_brief *brief, const struct request *r);

/* Prefetches the cards of a node further on: with thousands of nodes, most of the time is
 * spent waiting for memory. */
static inline void score_prefetch_cards(const struct score_call *call, size_t i)
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

/* As score_prefetch_cards, for policies that read the brief. */
static inline void score_prefetch_brief(const struct score_call *call, size_t i)
{
    enum { AHEAD = 8 };
    const struct ledger_node *node =
        i + AHEAD < call->n ? call->nodes[i + AHEAD].node : NULL;
    __builtin_prefetch(node);
    __builtin_prefetch(node ? &node->cpu_milli : NULL);
}

/* Each adds call->nodes to the survey. */
void score_survey_cards(const struct score_call *call, struct score_survey *survey);
void score_survey_terms(const struct score_call *call, struct score_survey *survey);
/* Each fills values[0..n). */
void score_pack(const struct score_call *call, bool emptiest, int64_t *values);
void score_scv(const struct score_call *call, int64_t *values);
void score_fgd(const struct score_call *call, int64_t *values);
/* The smallest range of values that is stretched over all points. */
int64_t score_fgd_least(const struct score_survey *survey);
