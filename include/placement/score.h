/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "domain/requests.h"
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
 * Under binpack and fgd, a pod whose annotation says spread is also spread over nodes. Nodes
 * where the pod takes cards from pods of lower priority (select_displaces) come after all others.
 */

enum score_policy { SCORE_BINPACK, SCORE_SPREAD, SCORE_SCV, SCORE_FGD };
enum { SCORE_POLICIES = SCORE_FGD + 1, SCORE_MAX = 10 };

const char *score_policy_name(enum score_policy policy);
/* Parses the name of a policy. -1: unknown; err lists the names. */
int score_policy_parse(struct span text, enum score_policy *policy, struct err *err);

/* The pod to place. */
struct score_pod {
    struct select_pod pod;
    int64_t cpu_milli; /* 0 if unknown */
};

/* How the cards that a pod of several would get on a node are connected. */
struct score_links {
    /* Of the narrowest connection in their ring, LINK_SYS to LINK_NV; LINK_SYS if it is unknown
     * or does not matter. */
    uint8_t class;
    uint8_t
        kind; /* of the node, in score_scratch.kinds; SCORE_KINDS: none, or not kept */
    bool leaves_many; /* more than 1/8 of the node's cards stay free */
    bool displaces;   /* select_displaces; also of a pod of one card */
};

/* What a policy found out about a node; score_end and score_best know the rest. */
struct score_value {
    int64_t base; /* larger is better; INT64_MIN: unknown, or cannot take the pod */
    /* fgd: shares << FRAG_SHIFT of a mean card that the node loses */
    int32_t fullness, balance;
    struct score_links links;
};

/* Scratch buffers, kept between calls so that a steady load allocates nothing. {0} is
 * valid. */
enum { SCORE_KINDS = 16 };
struct score_scratch {
    struct score_value *values;
    size_t cap;
    const struct links *kinds[SCORE_KINDS]; /* of the nodes of this call; only compared */
    struct frag frag;
};
void score_scratch_fini(struct score_scratch *scratch);

/* What a policy has to know of all nodes. */
enum { SCORE_TERMS = 6 };
struct score_survey {
    int64_t card_sum, cards;   /* sizes of the largest cards */
    int64_t most[SCORE_TERMS]; /* maximum of each of Yoda's terms */
};

/* Scoring in steps, between which the caller may release the ledger's lock: score_begin,
 * score_visit for all nodes, again while score_again says so, then score_end or score_best.
 * The nodes of a call are read during that call only. */
struct score_run {
    enum score_policy policy;
    const struct score_pod *pod; /* borrowed until score_end */
    struct score_scratch *scratch;
    struct score_survey survey;
    unsigned visits;
    bool by_rows; /* select_needs_no_cards of the request */
};
/* `n`: number of all nodes, at most. `mix` is read during the call only. */
void score_begin(struct score_run *run, enum score_policy policy,
                 const struct score_pod *pod, const struct requests *mix,
                 struct score_scratch *scratch, size_t n);
/* Visits nodes[0..n), which are the nodes from `at` on; NULL: an unknown one. */
void score_visit(struct score_run *run, size_t at, const struct ledger_node *const *nodes,
                 size_t n);
/* All nodes were visited. Does the policy need another visit of them? */
bool score_again(struct score_run *run);
/* Fills the points of all `n` nodes. */
void score_end(struct score_run *run, size_t n, int *points);

/* Instead of score_end: fills best[0..most) with the indexes of the best nodes, the best
 * first, by the exact values of the policy. Equal nodes are ordered by their names, so that
 * the same cluster gives the same answer. Nodes that cannot take the pod come last. Returns
 * how many: the smaller of `n` and `most`. */
typedef struct span (*score_name)(const void *ctx, size_t i);
size_t score_best(const struct score_run *run, size_t n, score_name name, const void *ctx,
                  size_t *best, size_t most);

/* All steps at once. Scores each node. A node that is unknown or cannot take the pod
 * gets 0. All nodes get 0 if the pod requests no GPU (under fgd: and CPU is unknown).
 * Under scv and fgd, exactly the best nodes get SCORE_MAX. */
void score_nodes(enum score_policy policy, const struct score_pod *pod,
                 const struct requests *mix, const struct ledger_node *const *nodes,
                 size_t n, struct score_scratch *scratch, int *points);
