/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "limit/state.h"

#include <stdbool.h>

/*
 * Reservations of memory between processes, without a lock.
 *
 * There is no shared sum that a killed process could leave wrong. Each process writes only its
 * own slot, and the sum is that of all slots. A process that reserves
 *
 *     1. writes the bytes into `want` of its slot,
 *     2. adds up `used` and `want` of all slots, reading `want` of a slot before its `used`,
 *     3. if the sum is within the limit: raises `used`, then sets `want` to 0.
 *
 * Of processes that reserve at the same time, the last one at step 1 sees all others at step 2,
 * so the sum of what they get is never above the limit. Each step is one atomic store: a process
 * killed between two of them leaves a slot that counts too much, until the slot is emptied.
 *
 * If the sum is too large only because of other processes at step 1 to 3, the process with the
 * lowest slot goes first: the others set `want` to 0 and begin again.
 */

/* Reserves bytes for the process of a slot. `used`: what it holds so far. True: reserved, and
 * `used` of the slot is raised. False: it does not fit, or the process of a lower slot stopped
 * while it reserved. */
bool reserve_add(struct limit_state *s, uint32_t slot, uint64_t used, uint64_t bytes,
                 uint64_t limit);

/* The process of the slot holds `used` bytes now: less than before. */
void reserve_set(struct limit_state *s, uint32_t slot, uint64_t used);

/* Bytes that all processes hold. */
uint64_t reserve_used(const struct limit_state *s);

/* The number of slots to look at. */
uint32_t reserve_high(const struct limit_state *s);
