/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "view/scope.h"
#include "view/source.h"

/*
 * The ledger as JSON, for people and tools: the shape of the Go extender's inspect
 * (nodes[].name totalGPU usedGPU devs[].id totalGPU usedGPU pods[].name namespace
 * usedGPU, amounts in units of aliyun.com/gpu-mem) plus our own members, whose amounts
 * are in MiB. The order is stable: nodes by name, cards by index, pods by namespace and
 * name. A pod that the scope hides has its amount and `"hidden":true`; of a pending one,
 * its request remains. A source that observes has `"observer":true` instead of what an
 * extender says of its leader and its binds.
 */

/* Writes all nodes, the pending pods with the reason of each, and the state of this
 * process. Each node is consistent; the lock is not held over all of them. Reasons are
 * computed for the first VIEW_INSPECT_REASONS different requests; pods with other
 * requests have none. */
enum { VIEW_INSPECT_REASONS = 64 };
void view_inspect_all(const struct view_source *source, const struct view_scope *scope,
                      struct buf *out);
/* Writes a text that changes whenever the result of view_inspect_all does. */
void view_inspect_state(const struct view_source *source, struct buf *out);
/* Writes one node. False (and an object with `error`): the node is not known. */
bool view_inspect_node(const struct view_source *source, struct span name,
                       const struct view_scope *scope, struct buf *out);

/* The parts of view_inspect_all: the object of one node, and the members after `nodes`.
 */
void view_inspect_write_node(const struct ledger *l, const struct ledger_node *node,
                             const struct view_scope *scope, struct buf *out);
void view_inspect_write_cluster(const struct view_source *source,
                                const struct view_scope *scope, struct buf *out);
