/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "domain/mix.h"
#include "placement/frag.h"

/*
 * Which of the nodes that can take a pod is to take it: points from 0 to SCORE_MAX, more
 * is better. Which cards of the node it will be is placement_choose's business, by the
 * pod's own annotation, and every policy judges a node by what those cards would be like
 * afterwards.
 *
 *   binpack  the tightest cards: what is left free on them, of their size
 *   spread   the emptiest cards
 *   scv      the best cards, as Yoda-Scheduler weighs them, each term in its own bounds
 *   fgd      where the pod strands the least memory, for what pods usually ask for
 *
 * A pod whose annotation asks for spread is spread over nodes, too, under binpack and
 * fgd.
 */

enum score_policy { SCORE_BINPACK, SCORE_SPREAD, SCORE_SCV, SCORE_FGD };
enum { SCORE_POLICIES = SCORE_FGD + 1, SCORE_MAX = 10 };

const char *score_policy_name(enum score_policy policy);
/* The policy of that name. -1: there is none; err lists them. */
int score_policy_parse(struct span text, enum score_policy *policy, struct err *err);

/* A node that may take the pod. */
struct score_node {
    const struct ledger_node *node; /* NULL: not known */
    int64_t cpu_milli, cpu_free;    /* of the node, where known; else 0 */
};

/* A pod that looks for a node. */
struct score_pod {
    const struct request *request;
    int64_t cpu_milli; /* 0 where nobody knows */
};

/* Room to work in, kept for the next call, so that a steady load allocates nothing. {0}
 * is valid. */
struct score_scratch {
    int64_t *values;
    size_t cap;
    struct frag frag;
};
void score_scratch_fini(struct score_scratch *room);

/* Gives each node its points. A node that is not known or cannot take the pod has 0, and
 * so has every node if the pod asks for nothing of ours (fgd: unless CPU is known). Under
 * scv and fgd the best of those that can take it have SCORE_MAX, and nobody else. */
void score_nodes(enum score_policy policy, const struct score_pod *pod,
                 const struct mix *mix, const struct score_node *nodes, size_t n,
                 struct score_scratch *room, int *points);
