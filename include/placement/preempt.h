/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/select.h"

/*
 * Selects the victims on a node: the pods that have to be removed so that a request fits
 * there, on one card or on as many cards as it needs.
 *
 * kube-scheduler selects victims by the totals of the node, which say nothing about a
 * single card. The pods that it selected count as removed; this module selects the
 * additional ones. Only pods of lower priority that are certainly bound to the node are
 * eligible. Of all sets of victims after which the request fits, the cheapest is selected:
 *
 *   1. its highest priority is lowest;
 *   2. then it has the fewest pods;
 *   3. then it frees the least memory beyond what was missing on the cards that the
 *      request gets. Memory that victims have on other cards of the node counts, too.
 *
 * For nvidia.com/gpu, the Scv's podList says which pod has which card. The cards of pods
 * that the podList does not show are unknown. Unknown cards count in favor of the request,
 * so a node is rejected only if certainly no set of victims helps.
 *
 * The result is exact if every pod is on one card and no pod is nominated to the node. In
 * other cases it is exact while few pods are eligible: ten, or fewer on a node with many
 * pods and cards, so that a node takes about a millisecond. Beyond that, every victim is
 * necessary, but a cheaper set may exist. Ties go to the larger pod, then to the lower
 * priority, then to the smaller UID.
 */

/* The pending pod. */
struct preemptor {
    struct select_pod pod;
    /* Layout preemption, which evicts by itself: terminating pods leave; mirror pods, pods of
     * DaemonSets, and pods with a spared_ms after now_ms are not eligible. */
    bool evicts;
    int64_t now_ms; /* monotonic */
};

struct preempt_victims {
    const struct ledger_pod **pods; /* by falling priority; in the arena */
    size_t n;                       /* 0: no additional victim is needed */
    uint64_t cards; /* bit i: the request gets card i of the node after that; 0 for
                       nvidia.com/gpu */
};

/* Selects the additional victims on a node. `leaving` has the UIDs of the pods that leave
 * in any case; UIDs of pods on other nodes are ignored. False: no set of victims helps. */
bool preempt_select(const struct preemptor *preemptor, const struct ledger_node *node,
                    const struct span *leaving, size_t n_leaving, struct arena *a,
                    struct preempt_victims *victims);
/* Would the request fit on the node if all eligible pods left? */
bool preempt_could_help(const struct preemptor *preemptor, const struct ledger_node *node,
                        struct arena *a);
