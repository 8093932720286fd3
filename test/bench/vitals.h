/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "bench/server.h"

/* Resources of a process that can leak. */

struct vitals {
    double mib; /* resident */
    unsigned fds, threads;
};

struct vitals vitals_now(const struct server *s);
/* The maximum of each. */
struct vitals vitals_peak(const struct vitals *samples, size_t n);
