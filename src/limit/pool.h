/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "limit/process.h"

/*
 * Memory pools: what counts is the memory that a pool holds (its attribute RESERVED_MEM_CURRENT),
 * which NVML shows, not the pointers that the program has. An allocation first reserves its size
 * in whole pages of 2 MiB, and afterwards counts what the pool took. Memory that the driver
 * returns at a synchronization stops counting there.
 */

/* Returns the unused memory of the pools of a card to the driver. */
void pool_trim(struct process *p, int card);

/* A free of a pointer of a pool with another function than cuMemFreeAsync: takes the record.
 * False: it is none. */
bool pool_free_begin(struct entry *taken, uint64_t pointer);
/* The driver answered rc. */
void pool_free_end(const struct entry *taken, int rc);
