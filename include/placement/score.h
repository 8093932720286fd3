/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "domain/mix.h"
#include "placement/frag.h"

/*
 * Scores the nodes that can take a pod: points from 0 to SCORE_MAX, more is better.
 * placement_choose selects the cards of a node by the pod's annotation. Every policy
 * scores a node by the state of those cards after the placement.
 *
 *   binpack  the fullest cards: least free memory relative to their size
 *   spread   the emptiest cards
 *   scv      the best cards by Yoda-Scheduler's weights, with every term normalized
 *   fgd      the node where the pod strands the least memory for the usual requests
 *
 * Under binpack and fgd, a pod whose annotation says spread is also spread over nodes.
 */

enum score_policy { SCORE_BINPACK, SCORE_SPREAD, SCORE_SCV, SCORE_FGD };
enum { SCORE_POLICIES = SCORE_FGD + 1, SCORE_MAX = 10 };

const char *score_policy_name(enum score_policy policy);
/* Parses the name of a policy. -1: unknown; err lists the names. */
int score_policy_parse(struct span text, enum score_policy *policy, struct err *err);

/* A node to score. */
struct score_node {
    const struct ledger_node *node; /* NULL: unknown */
    int64_t cpu_milli, cpu_free;    /* of the node; 0 if unknown */
};

/* The pod to place. */
struct score_pod {
    const struct request *request;
    int64_t cpu_milli; /* 0 if unknown */
};

/* Scratch buffers, kept between calls so that a steady load allocates nothing. {0} is
 * valid. */
struct score_scratch {
    int64_t *values;
    size_t cap;
    struct frag frag;
};
void score_scratch_fini(struct score_scratch *scratch);

/* Scores each node. A node that is unknown or cannot take the pod gets 0. All nodes get 0
 * if the pod requests no GPU (under fgd: and CPU is unknown). Under scv and fgd, exactly
 * the best nodes get SCORE_MAX. */
void score_nodes(enum score_policy policy, const struct score_pod *pod,
                 const struct mix *mix, const struct score_node *nodes, size_t n,
                 struct score_scratch *scratch, int *points);
