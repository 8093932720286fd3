/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/api_priv.h"

/* Every change of an object: assigns the version, records the event, notifies watches. */

/* Stores a new state of an object (a tree). The result is borrowed until the next
 * change. */
const struct object *sim_change_put(struct api *api, const struct kind *kind,
                                    json_t *root);
/* Removes the object. Returns its last state, borrowed until the next change. */
const struct object *sim_change_remove(struct api *api, const struct object *o);
/* Schedules an action on the object for the first api_tick at or after at_ms. */
void sim_change_schedule(struct api *api, int64_t at_ms, enum timer_action what,
                         const struct object *o);
