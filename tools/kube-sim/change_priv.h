/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/api_priv.h"

/* All changes of objects go through here: they get a version and reach the watches. */

/* Stores a new state of an object (a tree). It is borrowed until the next change. */
const struct object *sim_change_put(struct api *api, const struct kind *kind,
                                    json_t *root);
/* Takes the object out; returns its last state, borrowed until the next change. */
const struct object *sim_change_remove(struct api *api, const struct object *o);
/* Has something done to the object by the first api_tick that is not before at_ms. */
void sim_change_later(struct api *api, int64_t at_ms, enum errand_what what,
                      const struct object *o);
