/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/session.h"

/*
 * --classic: the output of the Go kubectl plugin, byte for byte, from the same objects by
 * the same rules: allocatable memory split evenly over the node's cards, and the pods'
 * annotations as they are. Where the Go plugin's order is random (nodes, and pods of a
 * node), it is by name and card here.
 */

/* `node` empty: all nodes. False: no such node; `out` then has the Go plugin's error. */
bool classic_write(struct buf *out, const struct cluster_state *cs, struct span node,
                   bool details);
