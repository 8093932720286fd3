/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/promise.h"

/*
 * What a bound pod counts for. Binding is final, so an error in a label or annotation
 * must not free memory: a bound pod never counts for less than its raw limits
 * (domain/limits.h), nor for less than its Binding promised.
 *
 * - Valid request: the request.
 * - Invalid request with limits: the raw limits. The annotations only name the cards.
 * - No limits: the promise came from labels, which users can edit later. The annotation
 *   gpushare/card-memory of the Binding has the exact amount. It counts if the current
 *   labels request less or nothing. Bindings of older versions lack it: if the labels now
 *   request nothing and the promise has all units of its cards, it counts as whole cards,
 *   because less than a unit was free on each.
 */

/* Computes what a bound pod counts for, given the promise in its annotations (n == 0:
 * none). -1 with `err` when the pod's own request is invalid; `request` is valid anyway
 * (kind NONE: nothing). */
int bound_request(const struct pod *pod, const struct promise *promise,
                  const struct request_rules *rules, struct arena *a,
                  struct request *request, struct err *err);
