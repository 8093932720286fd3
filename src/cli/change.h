/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/cluster_state.h"

/*
 * Changes that would let a pending pod fit, for `explain pod`.
 */

/* Appends one line per single change that would let the request fit and returns their
 * number: pods to remove (the fewest), a smaller request, another model, a card or node
 * back in service, memory freed by processes outside Kubernetes. Of a cordoned node only
 * `kubectl uncordon` is listed, unless the pod tolerates cordoned nodes. */
size_t change_list(struct buf *out, const struct ledger *l,
                   const struct ledger_node *const *nodes, size_t n,
                   const struct ledger_pod *pod, bool tolerates);
