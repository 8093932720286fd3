/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/session.h"
#include "cli/show.h"
#include "placement/defrag.h"
#include "placement/reason.h"

/*
 * Which pods may be moved, and to which nodes: what the ledger does not keep of Pods and
 * Nodes. Pure.
 *
 * To move a pod means to evict it; its controller then creates another one, which
 * kube-scheduler places. So a pod is moved only if a controller replaces it at any place,
 * with nothing lost: the rules are those of Cluster Autoscaler, which empties nodes in the
 * same way, including its annotation cluster-autoscaler.kubernetes.io/safe-to-evict. Pods
 * of a gang stay, because the other members would wait for the replacement. So do pods
 * whose constraints are not checked here: required pod affinity and topology spread,
 * volumes that may be tied to a node, host ports, resource claims, and resources other than
 * CPU, memory and cards.
 */

/* The rules have, by UID, what was read of each pod; an empty object has none. Adds the
 * items of a PodList that the ledger has. An item replaces the one with its UID. */
void defrag_rules_add_pods(json_t *rules, const struct ledger *l, const json_t *items);

/* Why the pod stays where it is, as the end of a sentence; NULL: it may be moved. */
const char *defrag_rules_stays(const json_t *rules, struct span uid);
/* UID of the pod's controller; empty: it has none, or the pod is unknown. */
struct span defrag_rules_controller(const json_t *rules, struct span uid);
/* May the pod run on the node? NULL: a pod without constraints that tolerates every taint.
 * `cordoned_too`: also on a cordoned node that its tolerations allow. */
bool defrag_rules_allow(const struct ledger_pod *pod, const struct ledger_node *node,
                        bool cordoned_too);

/* Why a pod with this spec can only run where it does, as far as the rules check: a volume claim,
 * pod affinity, topology spread, claims, or resources but those of nvidia.com; NULL: none. */
const char *defrag_rules_ties(const json_t *spec);

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

/* Pods in the plan are borrowed from the state until its next input; the rest is in the
 * arena. -1: no such pending pod, or its request is not for memory or whole cards. */
int defrag_plan_compute(const struct cluster_state *cs, json_t *rules,
                        const struct defrag_plan_goal *goal, struct arena *a,
                        struct defrag_plan_result *plan, struct err *err);
/* Appends the plan, or why there is none, and the pods that stay. */
void defrag_plan_write(struct buf *out, const struct cluster_state *cs,
                       const json_t *rules, const struct defrag_plan_result *plan,
                       enum show_format format, bool colors);

/*
 * `defrag --apply`: executes a plan.
 *
 * A plan is executed move by move. The node is cordoned first, like kubectl drain does, so
 * that no replacement returns to it. Each pod is evicted through the Eviction API, which
 * respects PodDisruptionBudgets; the next one only after the controller's replacement is
 * bound to another node and the evicted pod is gone. After each move the rest of the plan
 * is computed again, because kube-scheduler chooses the places. In the end, and after an
 * error or SIGINT or SIGTERM, the node is uncordoned if it was cordoned for the plan.
 */

/* Executes a plan with at least one move, and prints each step to standard output. For a
 * pending pod, waits until it is bound. -1: an error, with everything that was done
 * printed. */
int defrag_apply_run(struct session *s, json_t *rules,
                     const struct defrag_plan_goal *goal,
                     const struct defrag_plan_result *plan, struct err *err);
