/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/promise.h"

/*
 * The amount that a bound pod has in the ledger. Binding is final, so an error in a label
 * or annotation must not free memory: the amount is never less than the pod's raw limits
 * (domain/limits.h), nor less than its Binding promised.
 *
 * - Valid request: the request.
 * - Invalid request with limits: the raw limits. The annotations only name the cards.
 * - No limits: the promise came from labels, which users can edit later. The annotation
 *   gpushare/card-memory of the Binding has the exact amount, which counts if the current
 *   labels request less or nothing. Bindings of older versions lack the annotation. If
 *   the labels then request nothing and the promise has all units of its cards, the cards
 *   count as whole: the Binding left less than one unit free on each.
 */

/* Computes the amount of a bound pod, given the promise in its annotations (n == 0:
 * none). -1 with `err` when the pod's own request is invalid; `request` is valid anyway
 * (kind NONE: nothing). */
int bound_request(const struct pod *pod, const struct promise *promise,
                  const struct request_rules *rules, struct arena *a,
                  struct request *request, struct err *err);
