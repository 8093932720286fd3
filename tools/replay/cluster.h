/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/rng.h"
#include "placement/score.h"
#include "replay/trace.h"

/*
 * The cluster of a trace. Cards and promises are in a real ledger, whose nodes have Scv
 * objects with cards of TRACE_CARD MiB. Filter, node score and card choice are those of
 * the extender (placement), and so are its mix and what it knows of CPU. What
 * kube-scheduler checks in a real cluster (CPU, memory, pod slots and card models) is
 * tracked beside the ledger.
 */

struct cluster;

/* Who chooses the cards of a pod on its node. {0}: the extender, by what connects them. */
struct cluster_rule {
    const char *name;
    bool
        ignores_links; /* of struct request: in the choice of the node, and of the cards */
    /* Chooses `k` of the free cards instead; or NULL. */
    uint32_t (*choose)(const struct links *links, uint32_t free, unsigned k);
};

/* New. `sees_cpu`: the ledger knows the CPU of nodes and pods, as in the extender. The
 * trace is borrowed. */
struct cluster *cluster_new(const struct trace *trace, enum score_policy policy,
                            bool sees_cpu);
void cluster_free(struct cluster *c);
/* Before the first pod. Nodes have links, if a rule chooses. Copied. */
void cluster_set_rule(struct cluster *c, const struct cluster_rule *rule);

/* Schedules a pod to the node with the highest score; ties are broken at random. False: no
 * node fits, and the pod is dropped. */
bool cluster_arrive(struct cluster *c, const struct trace_pod *pod, struct rng *rng);
/* Removes a random running pod. There must be one. */
void cluster_leave(struct cluster *c, struct rng *rng);
/* Of the pods with cards, the n-th that arrived, from 1 on. NULL: it was dropped, or has left.
 * Pods without cards did not arrive. */
const struct ledger_pod *cluster_find(const struct cluster *c, uint64_t n);
/* Removes that pod, if it is running. */
void cluster_leave_nth(struct cluster *c, uint64_t n);

size_t cluster_pods(const struct cluster *c); /* running */
int64_t
cluster_allocated(const struct cluster *c); /* thousandths of a card, over all cards */
/* Would more than `percent` of the cards or of the CPU be allocated with this pod? */
bool cluster_would_exceed(const struct cluster *c, const struct trace_pod *pod,
                          int64_t percent);

/* Makes room for a pod that fits nowhere, by a plan of at most `most` moves
 * (placement/defrag.h), and schedules it. Only pods with cards move. False: there is no
 * such plan. *moves: pods that were moved. */
bool cluster_defragment(struct cluster *c, const struct trace_pod *pod, size_t most,
                        size_t *moves);
