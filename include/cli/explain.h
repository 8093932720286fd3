/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_state.h"

/*
 * Why a pod is where it is, or nowhere: for one that waits, each node and card and what
 * is missing there, and the smallest changes that would let it fit.
 */

/* `object` is the Pod as the API server sends it, for what kube-scheduler says; it may be
 * NULL. -1: there is no such pod among those that are not over. */
int explain_pod(struct buf *out, const struct cluster_state *w, struct span ns, struct span name,
                const json_t *object, bool colors, struct err *err);

/* Appends a line for each change of one thing that would let the request fit, none if
 * nothing would: pods that leave (the fewest), a smaller request, another model, a card
 * or node that works again, strangers that give back what they use. On a cordoned node
 * uncordoning it is the one thing, unless the pod tolerates that. */
size_t change_list(struct buf *out, const struct ledger *l,
                   const struct ledger_node *const *nodes, size_t n,
                   const struct ledger_pod *pod, bool tolerates);
