/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

/*
 * A heap with snapshots. While it is on, malloc and its variants allocate from one region
 * that never moves. Restoring a copy of the used part of that region restores every
 * object in it, including pointers. So a core returns to an earlier state without any code
 * in the core.
 *
 * The program is linked with --wrap for malloc, calloc, realloc, reallocarray,
 * aligned_alloc, strdup and free. Blocks from HEAP_LARGE (of arenas) still come from the C
 * library, to keep the copies small: none may exist when a copy is made.
 */

enum { HEAP_LARGE = 32768 }; /* struct ledger is smaller, a block of an arena is not */

void heap_open(void); /* empties it */
void heap_on(bool on);
void heap_save(struct buf *copy);
void heap_restore(const struct buf *copy);
