/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e/cluster.h"

/*
 * What a pod has to get, worked out here from the objects of the API server alone: Scvs,
 * Nodes, and the annotations of the other pods. Nothing of what the extender is made of
 * is used, nor is the extender asked.
 */

/* The pod, which was bound after all others that are there: its node could take it, its
 * cards are those that its policy names, and each annotation is what docs/api.md says of
 * it. `begun_ns`: when the test created it (nanoseconds since 1970). */
void expect_placed(const char *name, int64_t begun_ns);
int64_t expect_now_ns(void);

/* Which card, or cards, of which node the pod has to have: for cases that leave no
 * choice.
 */
void expect_on(const char *name, const char *node, const char *cards);
