/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/promise.h"

/*
 * The amount that a bound pod has in the ledger: what its spec asks for. Users can write
 * any annotation, so annotations only name the cards. Binding is final, so an error in a
 * label or annotation must not free memory.
 *
 * - Valid request: the request.
 * - Invalid request with limits: the raw limits (domain/limits.h).
 * - No limits: the request came from labels, which users can edit later. The record of the
 *   bind (gpushare/card-memory) counts if the current labels ask for less or nothing. It
 *   counts only beside all other annotations of our Bindings, and never for more than a
 *   card has. A user who forges all of them gains what the label would have given him: a
 *   request by label needs no quota either.
 *   A limit of gpu-core.percentage alone gives these pods that share of each of their
 *   cards, at most 100 percent; it does not make their request invalid.
 * - Otherwise a pod that asks for nothing has nothing, whatever its annotations say.
 */

/* Computes the amount of a bound pod, given the promise in its annotations (n == 0:
 * none). -1 with `err` when the pod's own request is invalid; `request` is valid anyway
 * (kind NONE: nothing). */
int bound_request(const struct pod *pod, const struct promise *promise,
                  const struct request_rules *rules, struct arena *a,
                  struct request *request, struct err *err);

/* Appends how the annotations of a bound pod and its request differ; nothing if they
 * agree. `request` and `invalid` are from bound_request. The first number is that of the
 * annotations, the second that of the request. */
void bound_differences(struct buf *out, const struct pod *pod,
                       const struct promise *promise, const struct request *request,
                       bool invalid, int64_t unit_mib);
