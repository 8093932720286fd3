/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement.h"

/*
 * Places for the members of a gang, all together: pods that start together or not at all
 * (domain/gang.h).
 *
 * The search is first fit decreasing: the members with the largest requests choose first,
 * each the first of the nodes that still fits beside the members before it. Members with
 * equal requests (of cards, CPU and memory) are one shape, and a node that has no place
 * left for a shape is not visited again for it. If a member finds no place, the search is
 * repeated with the shapes that fit on the fewest nodes first, and with the nodes in
 * reverse. For members with equal requests for one card the result is exact. For others a
 * placement that exists can be missed; every placement that is found is valid.
 *
 * Whether a request fits on a node at all is found out once for each shape and node, and
 * that is most of the cost. With 16 shapes and 5,000 nodes it is some milliseconds, with
 * one shape less than one.
 */

enum {
    GANG_PLAN_MEMBERS = 256, /* to place at once */
    GANG_PLAN_SHAPES = 16,   /* different requests among them */
};

struct gang_plan_member {
    const struct request *request;  /* borrowed */
    struct resources requests;      /* CPU and memory of the node; 0: unknown */
    struct span uid;                /* borrowed */
    const struct ledger_pod *pod;   /* borrowed; for the caller */
    const struct ledger_node *node; /* result; NULL: no place, or it needs none of ours */
    uint64_t cards; /* result: bit i: node->cards[i]; 0 for nvidia.com/gpu */
    bool placed;    /* result */
    /* Result: a node has cards for it, but not the CPU, memory or slot. */
    bool lacks_space;
};

struct gang_plan {
    const struct ledger_node *const *nodes; /* candidates in the order of preference */
    size_t n_nodes;
    int64_t priority;               /* the lowest of the members */
    struct span uid;                /* of the member that kube-scheduler asks about */
    const struct ledger_gang *gang; /* nominations of its members do not count; or NULL */
    bool spread;                    /* over the nodes: each member tries the next node */
};

/* Fills the results of the members and returns how many have a place. 0 if there are more
 * members or shapes than above. `a` gets the working memory. */
size_t gang_plan_place(const struct gang_plan *plan, struct gang_plan_member *members,
                       size_t n, struct arena *a);

/* Is the number of different requests at most GANG_PLAN_SHAPES, and that of members at most
 * GANG_PLAN_MEMBERS? */
bool gang_plan_is_bounded(const struct gang_plan_member *members, size_t n);
