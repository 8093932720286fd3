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
int64_t clock_wall_ns(void); /* since 1970, UTC */

/* RFC 3339, UTC: "2026-11-21T09:00:00Z", with milliseconds, with microseconds (the form
 * of a Kubernetes MicroTime). Appended to out. */
void clock_format_s(struct buf *out, int64_t seconds);
void clock_format_ms(struct buf *out, int64_t ms);
void clock_format_us(struct buf *out, int64_t us);

/* Seconds since 1970 of an RFC 3339 time with any fraction and offset; the fraction is
 * cut off. False when s is not such a time. */
bool clock_parse(struct span s, int64_t *seconds);
