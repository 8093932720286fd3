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
 * waits is worked out for INSPECT_WHY different requests at most: others go without. */
enum { INSPECT_WHY = 64 };
void inspect_all(struct store *store, struct buf *out);
/* One node; false (and an object with `error`) when it is not known. */
bool inspect_node(struct store *store, struct span name, struct buf *out);

/* The parts, for who puts them together otherwise: the object of a node, and the members
 * that follow the nodes. */
void inspect_object(const struct ledger *l, const struct ledger_node *node,
                    struct buf *out);
void inspect_cluster(struct store *store, struct buf *out);
