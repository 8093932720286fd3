/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/cases.h"

/* Is `want` contained in `have` (cases.h)? If not, *where is the path of the difference. */
bool cases_contains(const json_t *have, const json_t *want, struct buf *where);
/* Merges the other members of a "$from" object into the saved object. */
void cases_merge(json_t *target, const json_t *patch);
