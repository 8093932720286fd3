/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"

/*
 * Something that does not work, since when, and why: kept by the part that sees it, view
 * by /healthz.
 */

struct failure {
    int64_t since_ms; /* of clock_mono_ms; 0: it works */
    struct err err;   /* the newest reason */
};

/* It did not work. The first time counts, and the last reason. */
static inline void failure_record(struct failure *t, int64_t now_ms,
                                  const struct err *why)
{
    if (!t->since_ms)
        t->since_ms = now_ms;
    t->err = *why;
}

/* It works. */
static inline void failure_clear(struct failure *t)
{
    *t = (struct failure){0};
}
