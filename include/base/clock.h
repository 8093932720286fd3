/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Clocks and RFC 3339 times. Only programs and modules that wait read a clock; domain,
 * placement and core take the time as an argument.
 *
 * Intervals are measured on CLOCK_BOOTTIME, which never jumps and advances during a
 * suspend: a lease that expires during a suspend must be seen as expired.
 */

int64_t clock_mono_ms(void);     /* CLOCK_BOOTTIME, milliseconds */
int64_t clock_mono_us(void);     /* CLOCK_BOOTTIME, microseconds */
int64_t clock_wall_ns(void);     /* CLOCK_REALTIME, nanoseconds since 1970 */
void clock_sleep_ms(int64_t ms); /* a signal can end it early */

/*
 * A deadline that a paused virtual machine does not outlive. CLOCK_BOOTTIME does not
 * advance while the host pauses the machine, but the wall clock is corrected after it
 * resumes: then the difference of the two clocks changes. A change of more than
 * CLOCK_SKEW_MAX_MS therefore counts as passed, also when the wall clock is set by hand.
 */
struct clock_deadline {
    int64_t mono_ms;   /* 0: none */
    int64_t offset_ms; /* wall clock minus monotonic clock, as clock_offset_ms */
};
enum {
    CLOCK_SKEW_MAX_MS = 50
}; /* so far apart they may move: time is slewed, and rounded */

int64_t clock_offset_ms(int64_t mono_ms, int64_t wall_ns);
bool clock_deadline_passed(const struct clock_deadline *deadline, int64_t mono_ms,
                           int64_t wall_ns);

/* RFC 3339, UTC: "2026-11-21T09:00:00Z", with milliseconds, with microseconds (the form
 * of a Kubernetes MicroTime). Appended to out. */
void clock_format_s(struct buf *out, int64_t seconds);
void clock_format_ms(struct buf *out, int64_t ms);
void clock_format_us(struct buf *out, int64_t us);

/* Seconds since 1970 of an RFC 3339 time with any fraction and offset; the fraction is
 * cut off. False when s is not such a time. */
bool clock_parse(struct span s, int64_t *seconds);
