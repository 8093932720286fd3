/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "kube-sim/jsonx_priv.h"

/*
 * Merge patches (RFC 7386), which replace lists, and strategic merge patches of objects
 * and plain values, as `kubectl label` and `kubectl annotate` send them. Lists and
 * directives ($patch, $setElementOrder/x, ...) in a strategic merge patch are refused.
 */

/* Changes `target`; `patch` stays as it is. */
void sim_patch_merge(json_t *target, const json_t *patch);

/* Returns -1 with ERR_INVALID, and leaves `target` as it is, when the patch contains a list
 * or a directive. */
int sim_patch_strategic(json_t *target, const json_t *patch, struct err *err);
