/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "bench/world.h"

/*
 * What befalls the world of make soak. Pods come, are bound and go; cards fall ill,
 * shrink and recover; Nodes and Scvs go and come back, as new ones; clients of the
 * extender send half a request, rubbish, or vanish. And in turn: watches are cut,
 * kube-sim is killed and started again, history is forgotten, the API server refuses
 * everybody for seconds.
 */

struct churn_counts {
    size_t created, bound, refused; /* pods; refused: not bound */
    size_t ill, shrunk, well;       /* cards that were told so */
    size_t nodes_gone, scvs_gone, back;
    size_t cuts, outages, restarts;
};

struct churn;

/* `nodes`: how many kube-sim has made, of cards of `mib`. */
struct churn *churn_new(struct world *w, int nodes, int mib);
void churn_free(struct churn *c);

/* A little of all that, for a millisecond or so. */
void churn_step(struct churn *c);
/* The trouble that is next in turn. Takes seconds. */
void churn_trouble(struct churn *c);
/* All that is gone comes back, all cards are well, clients that behave badly leave. */
void churn_settle(struct churn *c);

const struct churn_counts *churn_counts(const struct churn *c);
