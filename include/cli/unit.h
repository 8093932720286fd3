/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_state.h"

/*
 * What one unit of aliyun.com/gpu-mem is in this cluster, for who was not told: a device
 * plugin reports as capacity what the cards of its node's Scv make in units.
 */

/* From a world of any unit. True: it follows, or nothing there speaks for another than
 * GiB. False: it does not, and *mib is what is most likely. */
bool unit_of_world(const struct cluster_state *w, int64_t *mib);
/* What the extender says in its view. False: nothing that can be read. */
bool unit_of_view(const json_t *view, int64_t *mib);
