/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/pod.h"
#include "placement/select.h"

/*
 * Defragmentation: the fewest pods to move to other nodes so that a request fits on one
 * node.
 *
 * A plan names that node, the pods that leave it, and a place on another node for each of
 * them. All places exist at the same time, so no pod becomes pending. Pods leave that node
 * only: no pod moves within a node, and no pod of a third node makes room for a moved one.
 * Of all plans, the one with the fewest pods is chosen; then the one that moves the least
 * memory. Further ties are broken by rule.
 *
 * The search is exact while it is short, which is the case for whole cards, and for shared
 * cards with few pods. It is bounded: beyond the bounds, every plan is valid, but a shorter
 * one may exist (`bounded`).
 *
 * A pod whose request is for nvidia.com/gpu does not move, because the kubelet chooses its
 * cards; nor does a pod without a known card or with an invalid request. A node to which
 * pods are nominated takes no moved pod.
 */

/* What the ledger does not know. */
struct defrag_world {
    const struct ledger *ledger;
    void *ctx;
    /* May the pod be evicted? */
    bool (*may_move)(void *ctx, const struct ledger_pod *pod);
    /* Do taints, node affinity and the like allow the pod on the node? NULL: the pod of the
     * target. */
    bool (*may_run)(void *ctx, const struct ledger_pod *pod,
                    const struct ledger_node *node);
    /* What is free on the node beside cards, and what the pod takes of it. */
    struct resources (*node_room)(void *ctx, const struct ledger_node *node);
    struct resources (*pod_room)(void *ctx, const struct ledger_pod *pod);
};

/* The pod, or the shape, to make room for. */
struct defrag_target {
    struct select_pod pod; /* a request for memory or whole cards; uid empty: a shape */
    struct resources room;
    struct span node; /* only on this node; empty: on any */
};

struct defrag_move {
    const struct ledger_pod *pod;
    const struct ledger_node *to;
    uint64_t cards; /* bit i: to->cards[i] */
};

struct defrag_plan {
    const struct ledger_node *node;
    uint64_t cards;            /* bit i: node->cards[i] is for the target */
    struct defrag_move *moves; /* in the arena; 0: it fits already */
    size_t n;
    int64_t mib;  /* that move; a whole card counts in full */
    bool bounded; /* a shorter plan may exist, or without a plan: one may exist */
};

/* Computes the plan. False: none was found; plan->bounded is set even then. The ledger is
 * read during the call only. */
bool defrag_find(const struct defrag_world *world, const struct defrag_target *target,
                 struct arena *a, struct defrag_plan *plan);
