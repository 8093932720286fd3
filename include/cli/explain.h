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

/* Appends one line per single change that would let the request fit and returns their
 * number: pods to remove (the fewest), a smaller request, another model, a card or node
 * back in service, memory freed by processes outside Kubernetes. Of a cordoned node only
 * `kubectl uncordon` is listed, unless the pod tolerates cordoned nodes. */
size_t change_list(struct buf *out, const struct ledger *l,
                   const struct ledger_node *const *nodes, size_t n,
                   const struct ledger_pod *pod, bool tolerates);
