/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/gang_plan.h"

/*
 * Whether a gang can start: which of its members have a place already, and whether the
 * others find one together.
 *
 * The members are the pods in the ledger that name the gang, and the pod that is asked
 * about, which the ledger may not know yet. A member that is bound, or whose cards are
 * reserved, has its place. Members that do not exist yet cannot be judged, and members that
 * request no GPU are not in the ledger. As many members need a place as the largest minimum
 * that a member names, or all if none names one. The nodes are those that kube-scheduler
 * offers to the pod that is asked about: those of the other members are not known.
 */

/* The pod that is asked about; everything is borrowed. */
struct gang_asker {
    struct span uid;
    struct span name;               /* of its gang */
    const struct ledger_gang *gang; /* NULL: the ledger knows no member */
    uint32_t minimum;               /* as this pod says; 0: unknown */
    const struct request *request;
    struct resources requests; /* CPU and memory; 0: unknown */
    int64_t priority;
};

struct gang_verdict {
    bool fits; /* enough members have a place, and the pod asked about is among them */
    bool too_large;  /* more members or different requests than gang_plan.h allows */
    uint32_t total;  /* members */
    uint32_t placed; /* of them bound or reserved */
    uint32_t found;  /* of the others: find a place now */
    uint32_t needed; /* how many must have a place */
    /* The members without a place before; the first is the pod asked about. In the arena. */
    struct gang_plan_member *members;
    size_t n_members;
    const struct request *missing; /* of a member that finds no place; NULL: none */
    bool lacks_space; /* that one finds cards, but not the CPU, memory or slot */
};

/* `nodes` in the order of preference. The pod's own reservation does not count. */
void gang_judge(const struct ledger *ledger, const struct gang_asker *asker,
                const struct ledger_node *const *nodes, size_t n_nodes, bool spread,
                struct arena *a, struct gang_verdict *verdict);

/* Have enough members a place, if the pod that is asked about has one? */
bool gang_judge_is_settled(const struct ledger *ledger, const struct gang_asker *asker);

/* Appends why the gang cannot start. The text is for the pod's owner. */
void gang_judge_reason(struct buf *out, const struct gang_asker *asker,
                       const struct gang_verdict *verdict);
