/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/jsonx_priv.h"
#include "kube-sim/kinds_priv.h"
#include "kube-sim/status_priv.h"

/* What holds for the metadata of every kind. */

/* Name, labels, annotations. The metadata's types must have been checked. */
void sim_meta_check(const struct kind *kind, const json_t *object, struct faultlist *f);

/* Prepares `object` to replace `old`: what the server owns (uid, creation time, deletion,
 * generation) is carried over where it is absent, and a fault where it differs. */
void sim_meta_carry_over(json_t *object, const json_t *old, struct faultlist *f);

/* Counts metadata.generation up when something but metadata and (`but_status`) status has
 * changed. */
void sim_meta_count_change(json_t *object, const json_t *old, bool but_status);

bool sim_meta_has_finalizers(const json_t *object);
