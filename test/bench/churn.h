/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "bench/testbed.h"

/*
 * The churn of make soak. Pods are created, bound and deleted; cards become unhealthy,
 * shrink and recover; Nodes and Scvs are deleted and created again; clients of the
 * extender send partial or invalid requests, or disconnect. In rotation: watches are cut,
 * kube-sim is killed and restarted, the history is compacted, the API server refuses all
 * requests for seconds.
 */

struct churn_counts {
    size_t created, bound, refused;      /* pods; refused: not bound */
    size_t unhealthy, shrunk, recovered; /* number of changes of cards */
    size_t nodes_gone, scvs_gone, back;
    size_t cuts, outages, restarts;
};

struct churn;

/* `nodes`: number of nodes that kube-sim has generated, with cards of `mib` MiB. */
struct churn *churn_new(struct testbed *w, int nodes, int mib);
void churn_free(struct churn *c);

/* One small step of churn, of about a millisecond. */
void churn_step(struct churn *c);
/* Injects the next fault of the rotation. Takes seconds. */
void churn_trouble(struct churn *c);
/* Recreates deleted objects, makes all cards healthy, disconnects misbehaving clients. */
void churn_settle(struct churn *c);

const struct churn_counts *churn_counts(const struct churn *c);
