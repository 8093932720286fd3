/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/world.h"

/*
 * Whose scv-agent is alive? The extender watches heartbeats and knows. One who looks for
 * a moment has the times in the Leases, and must take the clocks of nodes for right:
 * where that leaves doubt the extender is asked, if it can be reached, and what it says
 * counts.
 */

/* Is there a node about which it should be asked? */
bool beats_doubtful(const struct world *w);
/* Takes what its view says of those nodes. The view of the Go extender, which knows of no
 * heartbeats, and of one that is not ready change nothing. */
void beats_take(struct world *w, const json_t *view);
/* What is odd about the node's heartbeat, as part of a line; nothing is appended when
 * nothing is. Plain text. */
void beats_note(struct buf *out, const struct world *w, const struct ledger_node *node);
