/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/cluster_state.h"
#include "cli/show.h"

/*
 * `usage`: what each pod uses of its cards now, by the Scvs, beside what it was promised.
 * Pure. (Prometheus keeps the history of use.)
 */

/* Appends the pods of one namespace, unless `ns` is empty, by namespace and name. */
void usage_write(struct buf *out, const struct cluster_state *cs, struct span ns,
                 enum show_format format, bool colors);
