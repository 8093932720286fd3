/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

#include "base/mutant.h"

static int64_t now_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_mono_ms(void)
{
    return now_ns(CLOCK_BOOTTIME) / 1000000;
}

int64_t clock_mono_us(void)
{
    return now_ns(CLOCK_BOOTTIME) / 1000;
}

int64_t clock_wall_ns(void)
{
    return now_ns(CLOCK_REALTIME);
}

void clock_sleep_ms(int64_t ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

int64_t clock_offset_ms(int64_t mono_ms, int64_t wall_ns)
{
    return wall_ns / 1000000 - mono_ms;
}

bool clock_deadline_passed(const struct clock_deadline *deadline, int64_t mono_ms,
                           int64_t wall_ns)
{
    if (deadline->mono_ms == 0)
        return false;
    int64_t apart = clock_offset_ms(mono_ms, wall_ns) - deadline->offset_ms;
    if (MUTANT(frozen_clock_trusted))
        return mono_ms > deadline->mono_ms;
    return mono_ms > deadline->mono_ms || apart > CLOCK_SKEW_MAX_MS ||
           -apart > CLOCK_SKEW_MAX_MS;
}

static void add_date(struct buf *out, int64_t seconds)
{
    time_t t = (time_t)seconds;
    struct tm tm = {0};
    gmtime_r(&t, &tm);
    buf_printf(out, "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900, tm.tm_mon + 1,
               tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

void clock_format_s(struct buf *out, int64_t seconds)
{
    add_date(out, seconds);
    buf_addc(out, 'Z');
}

void clock_format_ms(struct buf *out, int64_t ms)
{
    add_date(out, ms / 1000);
    buf_printf(out, ".%03dZ", (int)(ms % 1000));
}

void clock_format_us(struct buf *out, int64_t us)
{
    add_date(out, us / 1000000);
    buf_printf(out, ".%06dZ", (int)(us % 1000000));
}

/* The next `digits` digits of *s as a number between lo and hi. */
static bool number(struct span *s, size_t digits, int lo, int hi, int *out)
{
    int64_t v;
    if (s->n < digits || s->p[0] == '-' || !span_i64((struct span){s->p, digits}, &v) ||
        v < lo || v > hi)
        return false;
    s->p += digits;
    s->n -= digits;
    *out = (int)v;
    return true;
}

static bool one_of(struct span *s, const char *set, char *got)
{
    if (!s->n || !s->p[0] || !strchr(set, s->p[0]))
        return false;
    *got = s->p[0];
    s->p++;
    s->n--;
    return true;
}

static bool fraction(struct span *s)
{
    char c;
    if (!one_of(s, ".", &c))
        return true;
    size_t digits = 0;
    while (one_of(s, "0123456789", &c))
        digits++;
    return digits > 0;
}

/* "Z" or "+hh:mm": seconds east of UTC. */
static bool offset(struct span *s, int *east)
{
    char c;
    int h, m;
    if (!one_of(s, "Zz+-", &c))
        return false;
    *east = 0;
    if (c == 'Z' || c == 'z')
        return true;
    char colon;
    if (!number(s, 2, 0, 23, &h) || !one_of(s, ":", &colon) || !number(s, 2, 0, 59, &m))
        return false;
    *east = (c == '-' ? -1 : 1) * (h * 3600 + m * 60);
    return true;
}

bool clock_parse(struct span s, int64_t *seconds)
{
    struct tm tm = {0};
    int east;
    char c;
    if (!number(&s, 4, 0, 9999, &tm.tm_year) || !one_of(&s, "-", &c) ||
        !number(&s, 2, 1, 12, &tm.tm_mon) || !one_of(&s, "-", &c) ||
        !number(&s, 2, 1, 31, &tm.tm_mday) || !one_of(&s, "Tt ", &c) ||
        !number(&s, 2, 0, 23, &tm.tm_hour) || !one_of(&s, ":", &c) ||
        !number(&s, 2, 0, 59, &tm.tm_min) || !one_of(&s, ":", &c) ||
        !number(&s, 2, 0, 60, &tm.tm_sec) || !fraction(&s) || !offset(&s, &east) || s.n)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *seconds = (int64_t)timegm(&tm) - east;
    return true;
}
