/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"

/*
 * What the extender knows, as JSON for people and tools: the shape of the Go extender's
 * inspect (nodes[].name totalGPU usedGPU devs[].id totalGPU usedGPU pods[].name namespace
 * usedGPU, amounts in units of aliyun.com/gpu-mem), and beside it what we add, in MiB.
 * Stable order: nodes by name, cards by index, pods by namespace and name.
 */

/* All nodes, the pods that wait and what they wait for, and the state of this process.
 * Each node is consistent in itself; the lock is not held over all of them. Why a pod
 * waits is worked out for VIEW_INSPECT_REASONS different requests at most: others go
 * without. */
enum { VIEW_INSPECT_REASONS = 64 };
void view_inspect_all(struct store *store, struct buf *out);
/* One node; false (and an object with `error`) when it is not known. */
bool view_inspect_node(struct store *store, struct span name, struct buf *out);

/* The parts, for who puts them together otherwise: the object of a node, and the members
 * that follow the nodes. */
void view_inspect_write_node(const struct ledger *l, const struct ledger_node *node,
                             struct buf *out);
void view_inspect_write_cluster(struct store *store, struct buf *out);
