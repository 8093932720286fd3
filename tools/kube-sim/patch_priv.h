/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "kube-sim/jsonx_priv.h"

/*
 * The two patches that Kubernetes clients use.
 *
 * A merge patch (RFC 7386) replaces lists. A strategic merge patch knows that some lists
 * are maps in disguise (containers by name, conditions by type), and takes directives:
 * $patch, $retainKeys, $setElementOrder/x, $deleteFromPrimitiveList/x.
 */

/* `target` is changed; `patch` is only read. */
void sim_patch_merge(json_t *target, const json_t *patch);

/* -1 when the patch is malformed: `target` is half changed then. */
int sim_patch_strategic(json_t *target, const json_t *patch, struct err *err);
