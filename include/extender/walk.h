/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"

/*
 * All nodes, for those who show them: in the order of their names, each consistent in
 * itself. The lock is taken for one node at a time, so that nobody waits for five
 * thousand of them.
 */

typedef void (*store_node_fn)(void *ctx, const struct ledger *l,
                              const struct ledger_node *node);

/* `fn` must not call the store. */
void store_each_node(struct store *store, store_node_fn fn, void *ctx);
