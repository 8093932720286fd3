/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/select.h"

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
 * Equal members for one card whose pods say gpushare/topology: gang go to one node, if one has room
 * for all: that of the members with a place, else the one whose set of cards is connected best.
 * They get its cards in the order of the ring, the first of members first. Otherwise they are
 * placed as others.
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
    struct resources requests;      /* CPU and memory of the node, 0: unknown; a slot */
    struct span uid;                /* borrowed */
    const struct ledger_pod *pod;   /* borrowed; for the caller */
    uint32_t created_s;             /* since 1970; for the caller */
    const struct ledger_node *node; /* result; NULL: no place, or it needs none of ours */
    uint64_t cards; /* result: bit i: node->cards[i]; 0 for nvidia.com/gpu */
    bool placed;    /* result */
    /* Result: a node has cards for it, but not the CPU, memory or slot. */
    bool lacks_space;
};

struct gang_plan {
    const struct ledger_node *const *nodes; /* candidates in the order of preference */
    size_t n_nodes;
    size_t n_others; /* the last of them: not for the member whose `pod` is NULL */
    /* The member that kube-scheduler asks about, with the lowest priority of the members;
     * its request is not read. */
    struct select_pod pod;
    bool spread; /* over the nodes: each member tries the next node */
    const struct ledger_node
        *beside; /* of members that have a place; NULL: none has one */
};

/* Fills the results of the members and returns how many have a place. 0 with *too_large if
 * there are more members or shapes than above. `a` gets the working memory. */
size_t gang_plan_place(const struct gang_plan *plan, struct gang_plan_member *members,
                       size_t n, struct arena *a, bool *too_large);

/*
 * Whether a gang can start: which of its members have a place already, and whether the
 * others find one together.
 *
 * The members are the pods in the ledger that name the gang, and the pod that is asked
 * about, which the ledger may not know yet. A pod that terminates is no member: it keeps its
 * cards, but another pod takes its part. A member that is bound, or whose cards are reserved, has
 * its place. As many members need a place as the largest minimum that a member names, or all if
 * none names one. If there are more, those that were created first get the
 * places, whichever is asked about. If fewer exist, the gang cannot start while the asker
 * `waits`. Later those that exist are judged: members that request no GPU are not in the ledger,
 * and can be what the minimum counts.
 *
 * The result is a forecast. The nodes are those that kube-scheduler offers to the pod that is
 * asked about. What it offers to the other members is not known; if they find no place there,
 * all nodes count for them. No place is planned for a member with schedulingGates, which no
 * scheduler tries yet: until as many as must start have none, the gang waits. Nor for one of
 * another scheduler, which counts as one that finds its place. The bind decides (core.h).
 */

/* The pod that is asked about; everything is borrowed. */
struct gang_asker {
    struct select_pod pod;     /* pod.gang NULL: the ledger knows no member */
    struct span name;          /* of its gang */
    uint32_t minimum;          /* as this pod says; 0: unknown */
    bool waits;                /* for members that do not exist yet */
    uint32_t scheduler;        /* as in struct ledger_pod */
    struct resources requests; /* CPU and memory, 0: unknown; a slot */
};

struct gang_verdict {
    bool fits; /* enough members have a place, and the pod asked about is among them */
    bool
        too_large; /* more members or different requests than GANG_PLAN_MEMBERS and GANG_PLAN_SHAPES */
    uint32_t total;     /* members */
    uint32_t placed;    /* of them bound or reserved */
    uint32_t found;     /* of the others: find a place now */
    uint32_t gated;     /* ... have schedulingGates, or the pod asked about has */
    uint32_t elsewhere; /* ... are of another scheduler */
    uint32_t needed;    /* how many must have a place */
    uint32_t absent;    /* that the minimum counts and that the ledger does not have */
    /* The members without a place before; the first is the pod asked about. In the arena. */
    struct gang_plan_member *members;
    size_t n_members;
    const struct request *missing; /* of a member that finds no place; NULL: none */
    bool lacks_space; /* that one finds cards, but not the CPU, memory or slot */
};

/* `nodes` in the order of preference. The pod's own reservation does not count. With or without
 * nodes, total, placed, needed and absent of the verdict are complete: with placed + 1 >= needed,
 * enough members have a place if the asker has one. */
void gang_judge(const struct ledger *ledger, const struct gang_asker *asker,
                const struct ledger_node *const *nodes, size_t n_nodes, bool spread,
                struct arena *a, struct gang_verdict *verdict);

/* Appends why the gang cannot start. The text is for the pod's owner. */
void gang_judge_reason(struct buf *out, const struct gang_asker *asker,
                       const struct gang_verdict *verdict);
