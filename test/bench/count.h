/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "bench/load.h"

/*
 * Counts the allocations of connection threads. count.c is a library that is preloaded
 * into a server (LD_PRELOAD), counts, and calls the C library. The counts are in a file
 * that both processes map; an environment variable names it.
 */

#define COUNTS_FILE "GPUSHARE_COUNTS_FILE"

struct counts {
    _Atomic uint64_t program;   /* allocations by the program */
    _Atomic uint64_t libraries; /* allocations by libraries, libc included */
};

/* Creates the file before the server starts. Ends the program on an error. */
struct counts *counts_open(const char *path);
void counts_close(struct counts *counts);

/* Allocations per call of a warm server: a connection with many calls minus one with half as
 * many, so that the connection's own allocations cancel out. Uses COUNTS_CALLS requests of
 * the load. */
enum { COUNTS_CALLS = 256 };
struct allocations {
    double program, libraries;
};
struct allocations counts_measure(const struct counts *counts, const struct load *load);
