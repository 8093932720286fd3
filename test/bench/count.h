/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "bench/load.h"

/*
 * How often the threads of connections allocate. count.c becomes a library that is loaded
 * into a server before the others (LD_PRELOAD), counts, and lets the C library do the
 * work. The counts are in a file that both sides map, and that the environment names.
 */

#define COUNTS_FILE "GPUSHARE_COUNTS_FILE"

struct counts {
    _Atomic uint64_t program;   /* the program itself has asked for memory */
    _Atomic uint64_t libraries; /* a library has, libc included */
};

/* The file as it is before the server starts. Ends the program on failure. */
struct counts *counts_open(const char *path);
void counts_close(struct counts *counts);

/* Per call, when the server is warm: a connection of many calls, less one of half as
 * many, so that what a connection itself takes does not count. The load says which server
 * and what requests; it uses COUNTS_CALLS of them. */
enum { COUNTS_CALLS = 256 };
struct allocations {
    double program, libraries;
};
struct allocations counts_measure(const struct counts *counts, const struct load *load);
