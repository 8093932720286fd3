/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "domain/request_mix.h"
#include "placement/fragmentation.h"

/*
 * Scores the nodes that can take a pod: points from 0 to SCORE_MAX, more is better.
 * Every policy scores a node by
 * the cards that select_cards gives the pod there, as they are after the placement.
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

/* `node` NULL: unknown. */
static inline struct score_node score_node_of(const struct ledger_node *node)
{
    return node ? (struct score_node){node, node->cpu_milli, node->cpu_free}
                : (struct score_node){0};
}

/* The pod to place. */
struct score_pod {
    struct select_pod pod;
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

/* What a policy has to know of all nodes before it rates the first. */
enum { SCORE_TERMS = 6 };
struct score_survey {
    int64_t card_sum, cards;   /* sizes of the largest cards */
    int64_t most[SCORE_TERMS]; /* maximum of each of Yoda's terms */
};

/* Scoring in steps, between which the caller may release the ledger's lock: score_begin,
 * score_survey for all nodes, score_rate for all nodes, score_end. The nodes of a call are
 * read during that call only. */
struct score_run {
    enum score_policy policy;
    const struct score_pod *pod; /* borrowed until score_end */
    struct score_scratch *scratch;
    struct score_survey survey;
    int64_t mean_card_mib; /* while nodes are rated */
};
/* `n`: number of all nodes. `mix` is read during the call only. */
void score_begin(struct score_run *run, enum score_policy policy,
                 const struct score_pod *pod, const struct request_mix *mix,
                 struct score_scratch *scratch, size_t n);
void score_survey(struct score_run *run, const struct score_node *nodes, size_t n);
/* Rates nodes[0..n), which are the nodes from `at` on. */
void score_rate(struct score_run *run, const struct score_node *nodes, size_t at,
                size_t n);
/* Fills the points of all `n` nodes. */
void score_end(struct score_run *run, size_t n, int *points);

/* Instead of score_end: fills best[0..most) with the indexes of the best nodes, the best
 * first, by the exact values of the policy. Equal nodes are ordered by `names`, which has a
 * name for each node, so that the same cluster gives the same answer. Nodes that cannot
 * take the pod come last. Returns how many: the smaller of `n` and `most`. */
size_t score_best(const struct score_run *run, size_t n, const struct span *names,
                  size_t *best, size_t most);

/* All steps at once. Scores each node. A node that is unknown or cannot take the pod
 * gets 0. All nodes get 0 if the pod requests no GPU (under fgd: and CPU is unknown).
 * Under scv and fgd, exactly the best nodes get SCORE_MAX. */
void score_nodes(enum score_policy policy, const struct score_pod *pod,
                 const struct request_mix *mix, const struct score_node *nodes, size_t n,
                 struct score_scratch *scratch, int *points);
