/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/cluster_state.h"

/*
 * What the Go plugin prints, byte for byte, from the same objects by the same rules:
 * allocatable split evenly over its cards, and the annotations of pods as they are. Where
 * its order was random (nodes, and pods of a node) it is that of names and cards here.
 */

/* `node` empty: all. False: there is no such node, and the text says so as it did. */
bool classic_write(struct buf *out, const struct cluster_state *w, struct span node,
                   bool details);
