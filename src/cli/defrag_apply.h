/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/defrag_plan.h"
#include "cli/session.h"

/*
 * `defrag`: reads what the rules need, and executes a plan.
 *
 * A plan is executed move by move. The node is cordoned first, like kubectl drain does, so
 * that no replacement returns to it. Each pod is evicted through the Eviction API, which
 * respects PodDisruptionBudgets; the next one only after the controller's replacement is
 * bound to another node and the evicted pod is gone. After each move the rest of the plan
 * is computed again, because kube-scheduler chooses the places. In the end, and after an
 * error or SIGINT or SIGTERM, the node is uncordoned if it was cordoned for the plan.
 */

/* Lists nodes and pods of the session's cluster into the rules. */
int defrag_apply_load(struct session *s, struct defrag_rules *rules, struct err *err);
/* Executes a plan with at least one move, and prints each step to standard output. For a
 * pending pod, waits until it is bound. -1: an error, with everything that was done
 * printed. */
int defrag_apply_run(struct session *s, struct defrag_rules *rules,
                     const struct defrag_plan_goal *goal,
                     const struct defrag_plan_result *plan, struct err *err);
