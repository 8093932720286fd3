/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/explain.h"
#include "cli/show.h"
#include "placement/preempt.h"

/*
 *   explain.c          the pod, and a bound pod's cards
 *   explain_pending.c  why nodes reject a pending pod, and what would let it fit
 *   explain_preempt.c  layout preemption
 */

/* The text in progress and its sources. */
struct explain_page {
    struct buf *out;
    const struct cluster_state *cs;
    const struct ledger *l;
    const struct ledger_pod *pod;
    const struct explain_facts *facts;
    int64_t unit;

    /* of a pending pod */
    const struct request *r;
    const struct ledger_node **nodes; /* then only those that its own terms allow */
    size_t n, n_open;                 /* of them, and of those that are not cordoned */
    uint32_t kinds;                   /* of all obstacles of nodes, as bits */
    /* Nodes without an obstacle, with only EXPLAIN_LACKS, and that are only cordoned. */
    size_t fits, crowded, fits_cordoned;
    struct err quota;     /* why the quotas of its namespace do not allow it */
    struct span cordoned; /* the first of the latter */
    struct obstacle list[OBSTACLES_MAX];
    size_t n_list;
    uint32_t minimum;     /* of its gang; 0: unknown; 1: it waits for no others */
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

/* Kinds of obstacles for which kube-scheduler does not ask the extender: CPU and the like. */
enum {
    EXPLAIN_LACKS = 1 << OBSTACLE_OFFER | 1 << OBSTACLE_CPU | 1 << OBSTACLE_NODE_MEMORY |
                    1 << OBSTACLE_PODS,
    EXPLAIN_LIMITED = 1 << OBSTACLES, /* by a ResourceQuota: no kind of obstacle */
};
/* Lists what stands between the pod and the node as p->list; returns the kinds of what is of the
 * node, as bits. */
uint32_t explain_obstacles(struct explain_page *p, const struct ledger_node *node);

/* The pods to remove from a node so that the request fits there. */
struct explain_removal {
    const struct ledger_node *node; /* NULL: none helps */
    struct preempt_victims set;
    int64_t cost[3];
};
/* What layout preemption would evict (`evicts`): the lowest priority, then the fewest pods.
 * What somebody may delete: the fewest pods, then of the lowest priority, then with the least
 * memory. */
struct explain_removal explain_removal(struct explain_page *p, bool evicts,
                                       int64_t priority, struct arena *a);
/* Appends what layout preemption would do for p->pod, and what it does. */
void explain_preemption(struct explain_page *p);
/* Appends why nodes and cards reject p->pod, and what would let it fit. */
void explain_pending(struct explain_page *p);
