/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Time. Only programs and the modules that wait read the clock; domain, placement and
 * core are handed a time.
 *
 * Intervals are measured on CLOCK_BOOTTIME, which never jumps and goes on while the
 * machine sleeps: a lease that ran out during a suspend must be seen to have run out.
 */

int64_t clock_mono_ms(void);
int64_t clock_mono_us(void); /* the same clock */
int64_t clock_wall_ns(void); /* since 1970, UTC */
void clock_sleep_ms(int64_t ms); /* a signal can end it early */

/*
 * Until when something may be done, for a machine that may have stood still without its
 * clock for intervals noticing: a virtual machine that its host froze. When such a one
 * goes on, the wall clock is put right sooner or later, and the two clocks have moved
 * apart. They do so too when somebody sets the wall clock; it is then late as well, to be
 * on the safe side.
 */
struct clock_deadline {
    int64_t mono_ms; /* 0: none */
    int64_t
        offset_ms; /* what the wall clock less the other one was; see clock_offset_ms */
};
enum {
    CLOCK_APART_MS = 50
}; /* so far apart they may move: time is slewed, and rounded */

int64_t clock_offset_ms(int64_t mono_ms, int64_t wall_ns);
bool clock_late(const struct clock_deadline *deadline, int64_t mono_ms, int64_t wall_ns);

/* RFC 3339, UTC: "2026-11-21T09:00:00Z", with milliseconds, with microseconds (the form
 * of a Kubernetes MicroTime). Appended to out. */
void clock_format_s(struct buf *out, int64_t seconds);
void clock_format_ms(struct buf *out, int64_t ms);
void clock_format_us(struct buf *out, int64_t us);

/* Seconds since 1970 of an RFC 3339 time with any fraction and offset; the fraction is
 * cut off. False when s is not such a time. */
bool clock_parse(struct span s, int64_t *seconds);
