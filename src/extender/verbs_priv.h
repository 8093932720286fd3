/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "extender/verb_args.h"
#include "extender/verbs.h"
#include "placement/score.h"

struct verbs {
    struct verbs_config config;
    struct request_rules rules;
    pthread_mutex_t lock; /* protects free */
    struct verbs_work *free;
};

/* Scratch memory of one call. Reused by later calls, so that a steady load allocates
 * nothing. */
struct verbs_work {
    struct arena arena;
    struct verb_args args;
    struct buf failed, never;
    struct score_node *nodes; /* prioritize: the candidates ... */
    int *points;              /* ... and their scores */
    size_t nodes_cap, points_cap;
    struct score_scratch scratch;
    struct verbs_work *next;
};

struct verbs_work *verbs_work_take(struct verbs *v);
void verbs_work_release(struct verbs *v, struct verbs_work *w);

/* Writes {"Error": message} and returns the status. */
unsigned verbs_reply_error(struct buf *reply, unsigned status, const struct err *err);
/* Reads the body of filter or prioritize and checks that the core is ready. Returns 200
 * with the core borrowed (the caller calls store_read_end), or the status of the error
 * reply. */
unsigned verbs_begin(struct verbs *v, struct verbs_work *w, struct span body,
                     struct buf *reply, const struct core **core);
/* The ledger's nodes for the candidates from the i-th on, at most MAP_BATCH; NULL for a
 * node that the ledger does not know. Returns how many. */
size_t verbs_find_nodes(const struct verb_args *args, size_t i, const struct ledger *l,
                        const struct ledger_node *nodes[MAP_BATCH]);
