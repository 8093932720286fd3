/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "extender/verb_args.h"
#include "extender/verb_report.h"
#include "extender/verbs.h"
#include "placement/score.h"

struct verbs {
    struct verbs_config config;
    struct request_rules rules;
    struct verb_report *report; /* NULL: no pods are reported to the leader */
    pthread_mutex_t lock;       /* protects the members below */
    struct verbs_work *free;
    size_t kept_bytes; /* of all in `free` */
};

/* Scratch memory of one call. Reused by later calls, so that a steady load allocates
 * nothing. */
struct verbs_work {
    struct arena arena;
    struct verb_args args;
    struct buf failed, never;
    struct score_node *nodes; /* the candidates to score */
    int *points;              /* prioritize: their scores */
    uint32_t *fitting;        /* filter: indexes of the candidates that fit */
    size_t nodes_cap, points_cap, fitting_cap;
    struct score_scratch scratch;
    /* filter: candidates where evictions could help the pod; borrowed from `args` */
    struct span victims[CORE_PREEMPT_NODES];
    size_t n_victims;
    /* filter: other members of its gang need places, too, so that no pod is evicted for
     * it */
    bool waits;
    bool simulated;       /* filter: the candidates are template Nodes */
    uint64_t charged;     /* to the budget: what the buffers have */
    uint64_t charged_pod; /* ... and what the pod may need */
    struct verbs_work *next;
};

struct verbs_work *verbs_work_take(struct verbs *v);
void verbs_work_release(struct verbs *v, struct verbs_work *w);

/* Writes {"Error": message} and returns the status, of which 0 stands for that of the
 * error's code. */
unsigned verbs_reply_error(struct buf *reply, unsigned status, const struct err *err);
/* Reads the body of filter or prioritize. Returns 200, or the status of the error reply. */
unsigned verbs_begin(struct verbs *v, struct verbs_work *w, struct span body,
                     struct buf *reply);
/* Charges the budget for the buffers of the call, and for `more` bytes that they are about
 * to grow by. To be called regularly while they grow. Returns 200, or 503 with the error
 * reply. */
unsigned verbs_charge(struct verbs *v, struct verbs_work *w, struct buf *reply,
                      size_t more);
/* How many candidates of a call may be named, by what the ledger knows now. -1: not every
 * kind of object has been listed. */
int verbs_limits(struct verbs *v, struct verb_args_limits *limits, struct err *err);
/* The ledger's nodes for the candidates from the i-th up to the end-th, at most
 * MAP_BATCH; NULL for a node that the ledger does not know. Returns how many. */
size_t verbs_find_nodes(const struct verb_args *args, size_t i, size_t end,
                        const struct ledger *l,
                        const struct ledger_node *nodes[MAP_BATCH]);
/* Candidates to score. */
struct verbs_scored {
    const uint32_t *at; /* their indexes; NULL: the first n */
    size_t n;
    /* w->nodes[0..n).node are their nodes; `generation` is the ledger's when the first of them
     * was looked up. */
    bool found;
    uint64_t generation;
};
/* Scores the candidates. Only score_end or score_best is left to do. */
void verbs_score(struct verbs *v, struct verbs_work *w, const struct verbs_scored *these,
                 const struct score_pod *pod, struct score_run *run);
