/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_state.h"

/*
 * `explain pod`: for a pending pod, why each node and card cannot take it and the
 * smallest changes that would let it fit; for a bound pod, its cards and where that is
 * recorded.
 */

/* `object` is the Pod as the API server returns it, for its conditions and tolerations;
 * may be NULL. -1: no such pod, or all its containers have ended. */
int explain_pod(struct buf *out, const struct cluster_state *cs, struct span ns,
                struct span name, const json_t *object, bool colors, struct err *err);
