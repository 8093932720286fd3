/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/overuse.h"

/*
 * What the pods of one measurement use of a card, beside what they were promised.
 */

/* Are the namespace, the pod and the container known? */
bool overuse_has_name(const struct usage_container *c);
/* What the container itself was promised on the card; 0: nothing that is known. */
int64_t overuse_promise(const struct usage_container *c);
/* Does the pod of the container use more of the card than its promise and the tolerance? A
 * container of another UID is of another pod of that name. False also for a pod that is
 * exempt. */
bool overuse_pod_is_over(const struct usage *u, size_t container, int64_t tolerance_mib);
/* What all containers of the pod use of the card. */
int64_t overuse_pod_uses(const struct usage *u, const struct usage_container *c);
/* What the pods of a card were promised and cannot get, or less; INT64_MIN: not known. */
int64_t overuse_lacking(const struct usage *u, size_t card);
