/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_state.h"

/*
 * Determines the cluster's unit of aliyun.com/gpu-mem when no option sets it. A device
 * plugin reports as capacity the number of units that the cards of the node's Scv make.
 */

/* Works with a state of any unit. True: *mib follows from the nodes, or nothing speaks
 * against GiB. False: *mib is only the most likely unit. */
bool unit_of_cluster(const struct cluster_state *cs, int64_t *mib);
/* The unit in the extender's view. False: it has no valid one. */
bool unit_of_view(const json_t *view, int64_t *mib);
