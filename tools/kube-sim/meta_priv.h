/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/jsonx_priv.h"
#include "kube-sim/kinds_priv.h"
#include "kube-sim/status_priv.h"

/* The metadata of every kind. */

/* Validates name, labels and annotations. Requires sim_shape_check of the metadata. */
void sim_meta_check(const struct kind *kind, const json_t *object, struct faultlist *f);

/* Prepares `object` to replace `old`: copies absent members that the server owns (uid,
 * creation time, deletion, generation), and adds a fault if one differs. */
void sim_meta_carry_over(json_t *object, const json_t *old, struct faultlist *f);

/* Increments metadata.generation if a member other than metadata and (`but_status`) status
 * has changed. */
void sim_meta_count_change(json_t *object, const json_t *old, bool but_status);

bool sim_meta_has_finalizers(const json_t *object);
