/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement.h"

/*
 * For a pod that waits: on how many nodes its request fits, and where least is missing.
 * Nodes are looked at one after the other, each in constant memory. On a cordoned node it
 * does not fit, whatever is free there, unless kube-scheduler offered the node.
 */

struct closest {
    const struct request *request; /* borrowed */
    int64_t priority;
    struct span uid; /* of the pod; borrowed */
    bool offered;    /* by kube-scheduler, every node; false after closest_init */

    uint32_t seen, fits;            /* nodes */
    const struct ledger_node *node; /* the nearest; one that fits before all others;
                                       of equals the one whose name is lowest */
    enum fit fit;                   /* whether it fits there */
    int64_t missing;                /* there */
};

void closest_init(struct closest *n, const struct request *request, int64_t priority,
                  struct span uid);
void closest_visit(struct closest *n, const struct ledger_node *node);

/* What is missing on the node: MiB over the cards that have most, or whole cards. 0: it
 * fits. INT64_MAX: the node gives nothing out to such a request, whatever is free. */
int64_t closest_shortfall(const struct ledger_node *node, const struct request *request);
