/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/promise.h"

/*
 * What a bound pod counts for. Binding is final, so an error in a label or annotation
 * must not take anything off a card: a bound pod never counts for less than its raw
 * limits (domain/limits.h), nor for less than its Binding promised.
 *
 * - Valid request: as it is.
 * - Invalid request, with limits: the raw limits. The annotations only say on which
 * cards.
 * - No limits: the promise came from labels, which anybody can edit later. The annotation
 *   gpushare/card-memory of the Binding has the exact amount. It counts where the labels
 *   of today ask for less, or for nothing. Bindings of older versions do not have it: if
 *   the labels ask for nothing now and the promise has all units of its cards, it counts
 *   as whole cards, because less than a unit was left of each.
 */

/* Works out the request of a pod that is bound, with the promise of its annotations
 * (n == 0: none). -1 with `err` when the pod's own request is invalid; `request` then has
 * what the pod counts for (kind NONE: nothing). */
int bound_request(const struct pod *pod, const struct promise *promise,
                  const struct request_rules *rules, struct arena *a,
                  struct request *request, struct err *err);
