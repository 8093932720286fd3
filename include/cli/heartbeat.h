/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_state.h"

/*
 * Whose scv-agent is alive? The extender watches heartbeats and knows. One who looks for
 * a moment has the times in the Leases, and must take the clocks of nodes for right:
 * where that leaves doubt the extender is asked, if it can be reached, and what it says
 * counts.
 */

/* Is there a node about which it should be asked? */
bool heartbeat_is_unclear(const struct cluster_state *w);
/* Takes what its view says of those nodes. The view of the Go extender, which knows of no
 * heartbeats, and of one that is not ready change nothing. */
void heartbeat_apply_view(struct cluster_state *w, const json_t *view);
/* What is odd about the node's heartbeat, as part of a line; nothing is appended when
 * nothing is. Plain text. */
void heartbeat_note(struct buf *out, const struct cluster_state *w, const struct ledger_node *node);
