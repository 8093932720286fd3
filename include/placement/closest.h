/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement.h"

/*
 * For a pending pod: on how many nodes its request fits, and which node is closest to
 * fitting. Nodes are visited one after the other, each in constant memory. On a cordoned
 * node the request does not fit, whatever is free there, unless kube-scheduler offered
 * the node.
 */

struct closest {
    const struct request *request; /* borrowed */
    int64_t priority;
    struct span uid; /* of the pod; borrowed */
    bool offered; /* kube-scheduler offered every visited node; closest_init clears it */

    uint32_t seen, fits;            /* numbers of nodes */
    const struct ledger_node *node; /* the closest. A node that fits precedes all others;
                                       ties go to the lowest name. NULL: none visited */
    enum fit fit;                   /* on that node */
    int64_t missing;                /* on that node, as of closest_shortfall */
};

void closest_init(struct closest *n, const struct request *request, int64_t priority,
                  struct span uid);
void closest_visit(struct closest *n, const struct ledger_node *node);

/* What the request lacks on the node: MiB, summed over the cards with most free memory,
 * or a number of whole cards. 0: it fits. INT64_MAX: the node takes no such request,
 * whatever is free there. */
int64_t closest_shortfall(const struct ledger_node *node, const struct request *request);
