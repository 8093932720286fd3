/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_state.h"

/*
 * Whether scv-agent renews the Lease of each node. The extender watches Leases and knows.
 * A single list shows only the times in the Leases, which depend on the nodes' clocks:
 * where they are not conclusive, the extender's view overrides them.
 */

/* Is there a node whose state only the extender knows? */
bool heartbeat_is_unclear(const struct cluster_state *cs);
/* Applies the extender's view (GET /gpushare-scheduler/inspect) to those nodes. The view
 * of the Go extender, and of an extender that is not ready, change nothing. */
void heartbeat_apply_view(struct cluster_state *cs, const json_t *view);
/* Appends what is unusual about the node's heartbeat, as one sentence without control
 * characters; nothing otherwise. */
void heartbeat_note(struct buf *out, const struct cluster_state *cs,
                    const struct ledger_node *node);
