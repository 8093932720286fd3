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

/*
 * Sets own_pid and slots of the places whose pods have a limit, in the arena. A process that has
 * just ended is left out.
 *
 * Corrects what the limits count, too: writes `extra` of each card of each pod. It falls at once,
 * and rises to the least of LIMIT_SLOTS_RISE measurements in a row above it, because a process
 * that frees memory between NVML's answer and the reading of its slot seems to count too little.
 * The bytes are those of NVML: the slots that a pod forges lower them to 0 at most. A card of
 * which NVML does not list the processes keeps its value, as all do while scv-agent does not run.
 * On an error the other files are read and written all the same.
 */
enum { LIMIT_SLOTS_RISE = 8 };
int limit_slots_read(const char *dir, const char *host_root, const struct gpu_sample *s,
                     struct usage_place *places, size_t n, struct arena *a,
                     struct err *err);
