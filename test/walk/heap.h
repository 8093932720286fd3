/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * A heap that can be copied away and back. While it is on, all that malloc and its kin
 * give out is in one region of memory that never moves; a copy of the used part of that
 * region, put back later, brings everything in it to what it was, pointers and all. So a
 * core can be taken back to an earlier state without a word of code in the core.
 *
 * The program is linked with --wrap for malloc, calloc, realloc, reallocarray,
 * aligned_alloc, strdup and free. Blocks of HEAP_LARGE and more (of arenas) come from the
 * C library all the same, to keep the copies small: none may live when a copy is made.
 */

enum { HEAP_LARGE = 16384 };

void heap_open(void);
void heap_close(void);
void heap_on(bool on);
/* Zeroed, in the region. */
void *heap_zalloc(size_t n);
/* How many bytes a copy takes now. */
size_t heap_used(void);
void heap_save(void *copy);
void heap_restore(const void *copy, size_t n);
