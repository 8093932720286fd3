/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/cluster.h"

/*
 * The placement that a pod must get, computed from the objects of the API server alone:
 * Scvs, Nodes, and the annotations of the other pods. This uses no code of the extender,
 * and no reply of the extender.
 */

/* Checks a pod that was bound after all other pods: the node fits it, the cards are those of
 * its policy, and each annotation is as in docs/api.md. `begun_ns`: when the test created
 * the pod (nanoseconds since 1970). */
void expect_placed(const char *name, int64_t begun_ns);

/* Checks that the pod has these cards of this node. */
void expect_on(const char *name, const char *node, const char *cards);
