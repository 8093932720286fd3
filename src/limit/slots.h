/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "limit/state.h"

/*
 * Slots of a state file: who owns them, and when their owner has ended. See struct limit_slot.
 */

enum slots_result {
    SLOTS_DONE,
    SLOTS_NO_FILE,
    SLOTS_NO_LOCKS,
    SLOTS_NO_MEMORY,
    SLOTS_FULL
};

/* Maps the file and takes a slot of it for this process, until the process ends or unmaps
 * `*s`. A forked child has neither the mapping nor the slot. With SLOTS_FULL `*s` is mapped,
 * without a slot. */
enum slots_result slots_claim(const char *path, struct limit_state **s, uint32_t *slot);

/* Empties the slots of ended processes. A file that cannot be opened now is left as it is: its
 * slots count until a later call. */
void slots_reclaim(const char *path, struct limit_state *s);
