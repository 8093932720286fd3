/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* A condition that lasts until it is cleared: recorded where it is detected, reported by
 * /healthz. */

struct failure {
    int64_t since_ms; /* clock_mono_ms of the first error; 0: no failure */
    struct err err;   /* the newest error */
};

static inline void failure_record(struct failure *f, int64_t now_ms,
                                  const struct err *why)
{
    if (!f->since_ms)
        f->since_ms = now_ms;
    f->err = *why;
}

static inline void failure_clear(struct failure *f)
{
    *f = (struct failure){0};
}
