/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement.h"

/*
 * Which pods of a node would have to leave for a request to fit there: on one card, or on
 * as many as it asks for.
 *
 * kube-scheduler proposes victims by what it counts for the whole node, which says
 * nothing of a single card. What it proposes is taken to leave; here is found what has to
 * leave besides. Only pods of lower priority are taken, and only those that are certainly
 * bound there. Of all sets that help, the cheapest:
 *
 *   1. the highest priority in it is lowest;
 *   2. then it has the fewest pods;
 *   3. then it gives up the least memory beyond what was missing on the cards that the
 *      request gets (what victims have on other cards of the node counts as beyond).
 *
 * For nvidia.com/gpu, who has which card is what the Scv's podList says. Cards of pods
 * that it does not show are not known: it is taken that what helps is what they leave, so
 * that a node is given up only where nothing does for certain, as far as the podList
 * shows who has which card.
 *
 * Exact where every pod sits on one card and nobody is nominated to the node; also
 * otherwise while few pods come into question (ten; fewer on a node with many pods and
 * cards, so that a node is worked out in about a millisecond). Else no pod is in the set
 * without need, but a cheaper set may exist. Ties go to what is larger, then of lower
 * priority, then to the smaller UID.
 */

struct preemptor {
    const struct request *request;
    int64_t priority;
    struct span uid; /* the asking pod's own */
};

struct preempt_victims {
    const struct ledger_pod **pods; /* by falling priority; in the arena */
    size_t n;                       /* 0: nobody else has to leave */
};

/* Finds the set for a node, given the UIDs of pods that leave in any case (others than
 * the node's are passed over). False: nothing helps here. */
bool preempt_select(const struct preemptor *ask, const struct ledger_node *node,
                    const struct span *leaving, size_t n_leaving, struct arena *a,
                    struct preempt_victims *set);
