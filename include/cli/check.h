/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_state.h"

/*
 * Does what is known agree with itself? A line for each difference, in a stable order;
 * each function appends them and returns how many there were. Lines that begin with
 * "note: " are no differences, and not counted: they may be right a moment later.
 */

/* Ledger, annotations, Node and Scv: a card that is promised beyond its size, a promise
 * without a card, annotations and objects that cannot be read, containers that the
 * kubelet gave other cards, memory in use from outside, sizes that differ. `node` empty:
 * all nodes. */
size_t check_world(struct buf *out, const struct cluster_state *w, struct span node);

/* The extender's view (GET /gpushare-scheduler/inspect, ours or that of the Go extender)
 * against the ledger. `who` stands for it in the lines. */
size_t check_extender(struct buf *out, const struct cluster_state *w, const json_t *view,
                      struct span node, const char *who);
