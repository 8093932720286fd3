/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/args.h"
#include "extender/verbs.h"
#include "placement/score.h"

/* What one call works with. Kept for the next call, so that a steady load allocates
 * nothing. */
struct work {
    struct arena arena;
    struct extender_args args;
    struct buf failed, never;
    struct score_node *nodes; /* prioritize: what the candidates are ... */
    int *points;              /* ... and what they get */
    size_t nodes_cap, points_cap;
    struct score_scratch room;
    struct work *next;
};

struct work *work_take(struct verbs *v);
void work_give(struct verbs *v, struct work *w);
struct store *verbs_store(struct verbs *v);
struct forward *verbs_forward(const struct verbs *v);           /* or NULL */
struct tally *verbs_tally(const struct verbs *v);               /* or NULL */
struct recorder *verbs_recorder(const struct verbs *v);         /* or NULL */
const struct request_rules *verbs_rules(const struct verbs *v); /* borrowed */
enum score_policy verbs_policy(const struct verbs *v);

/* {"Error": message}; returns the status. */
unsigned reply_error(struct buf *reply, unsigned status, const struct err *err);
/* Reads the body of filter or prioritize and sees that the core can answer. Returns 200
 * with the core borrowed (store_read_end is the caller's), or the status of the error. */
unsigned verb_begin(struct verbs *v, struct work *w, struct span body, struct buf *reply,
                    const struct core **core);
/* What the ledger knows of the next candidates, from the i-th on: at most MAP_BATCH of
 * them, NULL for a node that is not known. Returns how many. */
size_t candidates_find(const struct extender_args *args, size_t i, const struct ledger *l,
                       const struct ledger_node *nodes[MAP_BATCH]);
