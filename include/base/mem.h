/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Allocation, and release at the end of a scope.
 *
 * Out of memory aborts the process: no caller checks for NULL. Sizes are checked for
 * overflow. `cleanup_free` releases a pointer when its scope ends; `steal` moves it out
 * of that scope.
 */

/* Each returns new memory, never NULL. xcalloc zeroes it. */
void *xmalloc(size_t size) __attribute__((malloc, returns_nonnull, warn_unused_result));
void *xcalloc(size_t count, size_t size)
    __attribute__((malloc, returns_nonnull, warn_unused_result));
void *xreallocarray(void *p, size_t count, size_t size)
    __attribute__((returns_nonnull, warn_unused_result));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull, warn_unused_result));
/* A copy of n bytes, NUL-terminated. */
char *xmemdup0(const void *p, size_t n)
    __attribute__((malloc, returns_nonnull, warn_unused_result));
/* Zeroed, and aligned to a cache line (64 bytes). */
void *xzalloc_cacheline(size_t size)
    __attribute__((malloc, returns_nonnull, warn_unused_result));
char *xasprintf(const char *fmt, ...)
    __attribute__((format(printf, 1, 2), malloc, returns_nonnull, warn_unused_result));

/* Grows the array `*items` to hold at least `want` elements of `size` bytes; `*cap` is
 * its capacity in elements. Grows by at least half, so that appending an element takes
 * amortized constant time. */
void mem_grow(void **items, size_t *cap, size_t want, size_t size);
#define MEM_GROW(items, cap, want)                                                       \
    do {                                                                                 \
        size_t mem_want_ = (want);                                                       \
        if (mem_want_ > (cap))                                                           \
            mem_grow((void **)&(items), &(cap), mem_want_, sizeof *(items));             \
    } while (0)

/* Overwrites a string, which may be NULL, and releases it. For tokens and keys. */
void mem_wipe(char *s);
void mem_cleanup_wipe(char **s);
#define cleanup_wipe __attribute__((cleanup(mem_cleanup_wipe)))

void mem_cleanup_free(void *pp);
#define cleanup_free __attribute__((cleanup(mem_cleanup_free)))

/* Returns the pointer *pp and sets *pp to NULL. */
#define steal(pp)                                                                        \
    __extension__({                                                                      \
        __auto_type steal_p_ = (pp);                                                     \
        __auto_type steal_v_ = *steal_p_;                                                \
        *steal_p_ = NULL;                                                                \
        steal_v_;                                                                        \
    })

/* Closes a file descriptor, unless it is -1, when its scope ends. */
void mem_cleanup_close(int *fd);
#define cleanup_close __attribute__((cleanup(mem_cleanup_close)))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
