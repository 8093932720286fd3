/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

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

/* Calls of the extender that a measurement of serve.c needs. */
enum { COUNTS_CALLS = 256 };
