/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * System calls and strings without a C library. libgpushare-limit.so needs no other library,
 * because it is loaded into programs of any C library and version. A call returns what the
 * kernel does: a negative errno on failure.
 */

long sys_open(const char *path, int flags);
long sys_close(long fd);
long sys_read(long fd, void *into, size_t n);
long sys_write(long fd, const char *text, size_t n);
/* Which file it is, and its size in bytes. */
struct sys_file {
    uint64_t device, inode;
    int64_t size;
};
long sys_fstat(long fd, struct sys_file *f);
long sys_stat(const char *path, struct sys_file *f);
/* Maps n bytes of the file for reading, and for writing if `write`. NULL: failed. */
void *sys_map_file(long fd, size_t n, bool write);
/* New memory of zeros. NULL: failed. */
void *sys_map(size_t n);
void sys_unmap(void *p, size_t n);
/* fork leaves the child without the mapping. */
long sys_dont_fork(void *p, size_t n);
/* fork gives the child zeros. */
long sys_wipe_on_fork(void *p, size_t n);
/* Takes the write lock of a byte of the file, or fails at once. Linux 3.15. */
long sys_lock_byte(long fd, uint64_t byte);
long sys_pid(void);
/* A clock of the processor: some ten million to some billion ticks a second. */
uint64_t sys_ticks(void);
void sys_yield(void);
void sys_sleep_ms(long ms);

/* Sums and products end at UINT64_MAX, differences at 0. */
static inline uint64_t plus(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}
static inline uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}
static inline uint64_t times(uint64_t a, uint64_t b)
{
    return __builtin_mul_overflow(a, b, &a) ? UINT64_MAX : a;
}
static inline uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
/* To a multiple of the unit. */
static inline uint64_t round_up(uint64_t n, uint64_t unit)
{
    return plus(n, unit - 1) == UINT64_MAX ? UINT64_MAX : (n + unit - 1) / unit * unit;
}

/* A lock between the threads of a process. It begins as 0. */
void sys_lock(uint32_t *lock);
void sys_unlock(uint32_t *lock);

size_t text_len(const char *s);
bool text_eq(const char *a, const char *b);
bool text_starts(const char *s, const char *start);
/* Appends to the text in a buffer of `max` bytes. False: it does not fit. */
bool text_add(char *into, size_t max, const char *text);
