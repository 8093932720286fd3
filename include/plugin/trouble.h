/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"

/*
 * Something that does not work, since when, and why: kept by the part that sees it, shown
 * by /healthz.
 */

struct trouble {
    int64_t since_ms; /* of clock_mono_ms; 0: it works */
    struct err err;   /* the newest reason */
};

/* It did not work. The first time counts, and the last reason. */
static inline void trouble_note(struct trouble *t, int64_t now_ms, const struct err *why)
{
    if (!t->since_ms)
        t->since_ms = now_ms;
    t->err = *why;
}

/* It works. */
static inline void trouble_over(struct trouble *t)
{
    *t = (struct trouble){0};
}
