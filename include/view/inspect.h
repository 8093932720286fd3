/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "placement/reason.h"

/*
 * The ledger as JSON, for people and tools: the shape of the Go extender's inspect
 * (nodes[].name totalGPU usedGPU devs[].id totalGPU usedGPU pods[].name namespace
 * usedGPU, amounts in units of aliyun.com/gpu-mem) plus our own members, whose amounts
 * are in MiB. The order is stable: nodes by name, cards by index, pods by namespace and
 * name. A source that observes has `"observer":true` instead of what an
 * extender says of its leader and its binds.
 */

/* Where the views read the ledger: a core that another thread steps, behind the lock of
 * its owner. */
struct view_source {
    /* Takes the lock and borrows the core until read_end. */
    const struct core *(*read)(void *ctx);
    void (*read_end)(void *ctx);
    void *ctx;
    bool observer; /* the core is in observer mode: it says nothing of a leader */
    /* When filter was last called, or the process started: mono_ms; NULL: not shown. */
    const _Atomic int64_t *filter_ms;
    const char *hami_values; /* --hami-values; NULL: none, or an observer */
};

/* Calls `fn` for each node in the order of the names. The lock is taken once per node:
 * each node is consistent, the set of them is not one snapshot, and writers wait for one
 * node at most. `fn` must not take the lock. */
typedef void (*view_source_node_fn)(void *ctx, const struct ledger *l,
                                    const struct ledger_node *node);
void view_source_each_node(const struct view_source *source, view_source_node_fn fn,
                           void *ctx);

/* Writes all nodes, the pending pods with the reason of each, and the state of this
 * process. Each node is consistent; the lock is not held over all of them. Reasons are
 * computed for the first VIEW_INSPECT_REASONS different requests; pods with other
 * requests have none. */
enum { VIEW_INSPECT_REASONS = 64 };
void view_inspect_all(const struct view_source *source, struct buf *out);
/* Writes a text that changes whenever the result of view_inspect_all does. */
void view_inspect_state(const struct view_source *source, struct buf *out);
/* Writes one node. False (and an object with `error`): the node is not known. */
bool view_inspect_node(const struct view_source *source, struct span name,
                       struct buf *out);

/* Visits nodes for a pending pod, a bounded number under one lock: `count` candidates, or all
 * (`names` NULL); `usable`: only usable ones. Returns the name of the nearest, in the arena;
 * empty: none. n->node is not valid afterwards. */
struct span view_nearest_node(const struct view_source *source, struct nearest_node *n,
                              const struct span *names, size_t count, bool usable,
                              struct arena *a);

/* What other views share: the word for a card's health ("Healthy", "Unhealthy", ...), and the
 * pods of a list by namespace, name and UID, allocated in the arena. */
const char *view_health(enum card_state state);
size_t view_sort_pods(const struct ledger_pod *first, struct arena *a,
                      const struct ledger_pod ***out);

/* The parts of view_inspect_all: the object of one node (a view_source_node_fn; `jwrite` is a
 * struct jwrite), and the members after `nodes`. */
void view_inspect_write_node(void *jwrite, const struct ledger *l,
                             const struct ledger_node *node);
void view_inspect_write_cluster(const struct view_source *source, struct buf *out);
