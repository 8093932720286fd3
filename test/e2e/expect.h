/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e/cluster.h"

/*
 * The cards that a pod must get, computed only from the objects of the API server: Scvs,
 * Nodes and the annotations of the other pods. It uses no code of the extender and does
 * not call it.
 */

/* Checks a pod that was bound after all other pods: its node had enough memory, its
 * cards are those of its policy, and each annotation is as docs/api.md specifies.
 * `begun_ns`: when the test created it (nanoseconds since 1970). */
void expect_placed(const char *name, int64_t begun_ns);
int64_t expect_now_ns(void);

/* The card, or cards, and the node that the pod must have, for cases with only one
 * solution. */
void expect_on(const char *name, const char *node, const char *cards);
