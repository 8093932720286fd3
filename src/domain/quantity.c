/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities of Kubernetes: exact parsing and rounding. */
#include "domain/quantity.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

enum { UNIT_MAX_MIB = 1 << 16 }; /* sums of units cannot overflow */

/* A decimal suffix is a power of ten, a binary one a power of two: nothing is rounded. */
struct scale {
    int ten, two;
};

static bool read_suffix(struct span s, struct scale *scale)
{
    static const char decimal[] = "num0kMGTPE",
                      binary[] = "KMGTPE"; /* no suffix is a digit */
    const char *at;
    *scale = (struct scale){0};
    if (s.n <= 1) {
        at = s.n ? memchr(decimal, s.p[0], sizeof decimal - 1) : decimal + 3;
        scale->ten = at ? 3 * (int)(at - decimal - 3) : 0;
        return at;
    }
    if (s.n == 2 && s.p[1] == 'i') {
        at = memchr(binary, s.p[0], sizeof binary - 1);
        scale->two = at ? 10 * (int)(at - binary + 1) : 0;
        return at;
    }
    struct span digits = {s.p + 1, s.n - 1};
    if (digits.p[0] == '+' && digits.n > 1) {
        digits.p++;
        digits.n--;
    }
    int64_t exponent;
    if ((s.p[0] != 'e' && s.p[0] != 'E') || !span_i64(digits, &exponent) ||
        exponent < -30 || exponent > 30)
        return false;
    scale->ten = (int)exponent;
    return true;
}

/* Digits with at most one point: the digits as a number, and how many follow the point. */
static bool read_digits(struct span *s, int64_t *value, int *behind)
{
    bool point = false, any = false;
    *value = 0;
    *behind = 0;
    while (s->n) {
        char c = s->p[0];
        if (c == '.' && !point) {
            point = true;
        } else if (c >= '0' && c <= '9') {
            if (__builtin_mul_overflow(*value, 10, value) ||
                __builtin_add_overflow(*value, c - '0', value))
                return false;
            *behind += point;
            any = true;
        } else {
            break;
        }
        s->p++;
        s->n--;
    }
    return any;
}

/* The value times 10^shift, rounded up; *fraction: it is not whole. False when the text
 * is no quantity or does not fit. */
static bool read_value(struct span text, int shift, int64_t *value, bool *fraction)
{
    struct scale scale;
    int behind;
    if (text.n && text.p[0] == '+') {
        text.p++;
        text.n--;
    }
    if (!read_digits(&text, value, &behind) || !read_suffix(text, &scale))
        return false;
    scale.ten += shift - behind;
    for (; scale.ten > 0 && *value; scale.ten--)
        if (__builtin_mul_overflow(*value, 10, value))
            return false;
    for (; scale.two > 0 && *value; scale.two--)
        if (__builtin_mul_overflow(*value, 2, value))
            return false;
    *fraction = false;
    for (; scale.ten < 0 && *value; scale.ten++) {
        bool rest = *value % 10 != 0;
        *fraction |= rest;
        *value = *value / 10 + rest;
    }
    return true;
}

int quantity_read(struct span text, int64_t *value, struct err *err)
{
    bool fraction;
    int64_t v;
    if (!read_value(text, 0, &v, &fraction) || fraction)
        return err_set(err, ERR_INVALID, "\"%.*s\" is not a whole number",
                       text.n < 64 ? (int)text.n : 64, text.p);
    *value = v;
    return 0;
}

int64_t quantity_ceil(struct span text)
{
    bool fraction;
    int64_t v;
    return read_value(text, 0, &v, &fraction) ? v : INT64_MAX;
}

int64_t quantity_milli(struct span text, int64_t most)
{
    bool fraction;
    int64_t v;
    return read_value(text, 3, &v, &fraction) && v < most ? v : most;
}

int quantity_read_unit(struct span text, int64_t *mib, struct err *err)
{
    int64_t n;
    if (span_eq(text, SPAN("GiB"))) {
        *mib = 1024;
        return 0;
    }
    if (span_eq(text, SPAN("MiB"))) {
        *mib = 1;
        return 0;
    }
    if (text.n > 3 && span_eq((struct span){text.p + text.n - 3, 3}, SPAN("MiB")) &&
        span_i64((struct span){text.p, text.n - 3}, &n) && n >= 1 && n <= UNIT_MAX_MIB) {
        *mib = n;
        return 0;
    }
    return err_set(err, ERR_INVALID, "\"%.*s\" is none of GiB, MiB, <n>MiB",
                   SPAN_ARG(text));
}

void quantity_write_unit(struct buf *out, int64_t mib)
{
    if (mib == 1024) {
        buf_adds(out, "GiB");
        return;
    }
    if (mib != 1)
        buf_add_i64(out, mib);
    buf_adds(out, "MiB");
}
