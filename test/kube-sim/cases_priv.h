/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/cases.h"

/* Is `want` contained in `have`, as cases.h says? If not, *where names the place. */
bool cases_contains(const json_t *have, const json_t *want, struct buf *where);
/* Merges what stands beside a "$from" into the object that it names. */
void cases_merge(json_t *target, const json_t *patch);
