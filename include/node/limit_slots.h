/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "node/usage.h"

/*
 * Which processes of pods with a limit run under it: those that own a slot in the state files of
 * the pod (limit/state.h), in the device plugin's --limit-dir:
 *
 *     pods/UID/limit/I    of card I of the pod; written by the plugin, but for `extra`
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

/*
 * Corrects what the limit counts: writes `extra` of each card of each pod with a limit. It falls
 * at once, and rises to the least of LIMIT_SLOTS_RISE measurements in a row above it: a process
 * that frees memory between NVML's answer and the reading of its slot seems to count too little.
 * The bytes are those of NVML, so a pod that forges its slots gets at most 0 for them. A card of
 * which NVML does not list the processes keeps its value. On an error the other files are
 * written all the same.
 */
enum { LIMIT_SLOTS_RISE = 8 };
int limit_slots_correct(const char *dir, const struct gpu_sample *s,
                        const struct usage_limit *limits, size_t n, struct err *err);
