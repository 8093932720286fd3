/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/usage.h"

/*
 * Which processes of pods with a limit run under it: those that own a slot in the state files of
 * the pod (limit/state.h), in the device plugin's --limit-dir:
 *
 *     pods/UID/limit/I    of card I of the pod; written by the plugin
 *     pods/UID/state/I    the slots; the pod can write anything into it
 *
 * What the pod writes never acquits more than the one process that it names: what that process
 * uses beyond the promise is overuse all the same.
 */

/* Fills in the processes of the places whose pods have a limit, by rising pid. Arrays and
 * strings are in the arena. A process that has just ended is left out. */
void limit_slots_read(const char *dir, const char *host_root,
                      const struct usage_place *places, size_t n_places, struct arena *a,
                      const struct usage_limit **limits, size_t *n);
