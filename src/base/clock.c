/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <string.h>
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

/* Whether s begins with text of this form, in which 0 stands for any digit. Cuts it off. */
static bool cut_form(struct span *s, const char *form)
{
    size_t n = strlen(form);
    if (s->n < n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (form[i] == '0' ? s->p[i] < '0' || s->p[i] > '9' : s->p[i] != form[i])
            return false;
    s->p += n;
    s->n -= n;
    return true;
}

static int two_digits(const char *p)
{
    return (p[0] - '0') * 10 + p[1] - '0';
}

bool clock_parse(struct span s, int64_t *seconds)
{
    const char *at = s.p;
    int hours = 0, minutes = 0;
    if (!cut_form(&s, "0000-00-00T00:00:00"))
        return false;
    struct tm tm = {.tm_year = two_digits(at) * 100 + two_digits(at + 2) - 1900,
                    .tm_mon = two_digits(at + 5) - 1,
                    .tm_mday = two_digits(at + 8),
                    .tm_hour = two_digits(at + 11),
                    .tm_min = two_digits(at + 14),
                    .tm_sec = two_digits(at + 17)};
    if (cut_form(&s, ".0"))
        while (cut_form(&s, "0"))
            continue;
    at = s.p;
    if (cut_form(&s, "+00:00") || cut_form(&s, "-00:00")) {
        hours = two_digits(at + 1);
        minutes = two_digits(at + 4);
    } else if (!cut_form(&s, "Z")) {
        return false;
    }
    if (s.n || tm.tm_mon < 0 || tm.tm_mon > 11 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
        tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60 || hours > 23 || minutes > 59)
        return false;
    int east = hours * 3600 + minutes * 60;
    *seconds = (int64_t)timegm(&tm) - (*at == '-' ? -east : east);
    return true;
}
