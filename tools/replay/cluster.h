/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/rng.h"
#include "placement/score.h"
#include "replay/trace.h"

/*
 * The cluster of a trace. Cards, and what of them is promised, are a real ledger, whose
 * nodes have Scv objects with cards of TRACE_CARD MiB; filter, points and cards are what
 * the extender's are (placement). CPU, memory and models of nodes, of which
 * kube-scheduler takes care in a real cluster, are kept beside it.
 */

struct cluster;

/* New. `sees_cpu`: the policy knows the CPU of nodes and pods, as a plugin of
 * kube-scheduler would; an extender does not. The trace is borrowed. */
struct cluster *cluster_new(const struct trace *trace, enum score_policy policy,
                            bool sees_cpu);
void cluster_free(struct cluster *c);

/* A pod comes: it goes to the node with the most points, of equals to a random one. False
 * if none can take it; it is forgotten then. */
bool cluster_arrive(struct cluster *c, const struct trace_pod *pod, struct rng *rng);
/* A random one of the pods that run leaves. There must be one. */
void cluster_leave(struct cluster *c, struct rng *rng);

size_t cluster_pods(const struct cluster *c);       /* that run */
int64_t cluster_allocated(const struct cluster *c); /* thousandths of a card, of all */
/* Would the cluster, with that pod, have more than so much of its cards or of its CPU
 * allocated? */
bool cluster_would_exceed(const struct cluster *c, const struct trace_pod *pod,
                          int64_t percent);
