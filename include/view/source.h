/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"

/*
 * Where the views read the ledger: a core that another thread steps, behind the lock of
 * its owner.
 */

struct view_source {
    /* Takes the lock and borrows the core until read_end. */
    const struct core *(*read)(void *ctx);
    void (*read_end)(void *ctx);
    void *ctx;
    bool observer; /* the core is in observer mode: it says nothing of a leader */
};

/* Calls `fn` for each node in the order of the names. The lock is taken once per node:
 * each node is consistent, the set of them is not one snapshot, and writers wait for one
 * node at most. `fn` must not take the lock. */
typedef void (*view_source_node_fn)(void *ctx, const struct ledger *l,
                                    const struct ledger_node *node);
void view_source_each_node(const struct view_source *source, view_source_node_fn fn,
                           void *ctx);
