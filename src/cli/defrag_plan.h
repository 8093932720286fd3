/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/cluster_state.h"
#include "cli/defrag_rules.h"
#include "cli/show.h"
#include "placement/defrag.h"

/*
 * `defrag`: which pods to move (placement/defrag.h) so that a pending pod or a given shape
 * fits, as text or as JSON. Pure.
 */

struct defrag_plan_goal {
    struct span ns, name;  /* of the pending pod; name empty: the shape */
    struct request shape;  /* memory or whole cards */
    struct span node;      /* make room on this node; empty: on any */
    bool node_is_cordoned; /* for these moves: make room on `node` although it is */
};

struct defrag_plan_result {
    bool found;
    const struct ledger_pod *pod;   /* NULL: a shape */
    const struct ledger_node *node; /* of the goal; NULL: any */
    struct request request;
    struct defrag_plan plan; /* plan.n 0: the request fits already */
};

/* A shape: `mib` on each of `cards` cards, or whole cards if it is 0. `models` is
 * borrowed. */
struct request defrag_plan_shape(int64_t cards, int64_t mib, struct span models,
                                 int64_t unit_mib);
/* Pods in the plan are borrowed from the state until its next input; the rest is in the
 * arena. -1: no such pending pod, or its request is not for memory or whole cards. */
int defrag_plan_compute(const struct cluster_state *cs, struct defrag_rules *rules,
                        const struct defrag_plan_goal *goal, struct arena *a,
                        struct defrag_plan_result *plan, struct err *err);
/* Appends the plan, or why there is none, and the pods that stay. */
void defrag_plan_write(struct buf *out, const struct cluster_state *cs,
                       const struct defrag_rules *rules,
                       const struct defrag_plan_result *plan, enum show_format format,
                       bool colors);
