/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/explain.h"
#include "cli/show.h"

/*
 *   explain.c          the pod, and a bound pod's cards
 *   explain_pending.c  why nodes reject a pending pod
 */

/* The text in progress and its sources. */
struct explain_page {
    struct buf *out;
    const struct cluster_state *cs;
    const struct ledger *l;
    const struct ledger_pod *pod;
    const struct explain_facts *facts;
    int64_t unit;
    bool tolerates; /* the pod tolerates cordoned nodes */

    /* of a pending pod */
    const struct request *r;
    const struct ledger_node **nodes;
    size_t n;
    json_t *viewed;       /* nodes of the extender's view, by name */
    struct buf own;       /* the cards that are reserved for the pod */
    struct span own_node; /* ... on that node */
    struct buf changes;   /* lines */
};

void explain_request(struct explain_page *p); /* of p->pod */
/* kube-scheduler's own reason in the Pod, which also covers CPU, taints and volumes; empty: none.
 * *tried, unless NULL: whether any scheduler has looked at it. */
struct span explain_unscheduled(const json_t *pod, bool *tried);
/* Appends the pods that have promises on the card. */
void explain_promises(struct buf *out, const struct ledger_node *node,
                      const struct card *card, int64_t unit, struct arena *a);
/* Appends why nodes and cards reject p->pod, and what would let it fit. */
void explain_pending(struct explain_page *p);
