/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/quantity_priv.h"

#include "base/mem.h"

__extension__ typedef __int128 wide;

static const wide NANO = 1000000000;

struct unit {
    const char *suffix;
    enum quantity_form form;
    int power; /* of 10, or of 1024 */
};

static const struct unit units[] = {
    {"n", QUANTITY_DECIMAL, -9}, {"u", QUANTITY_DECIMAL, -6}, {"m", QUANTITY_DECIMAL, -3},
    {"", QUANTITY_DECIMAL, 0},   {"k", QUANTITY_DECIMAL, 3},  {"M", QUANTITY_DECIMAL, 6},
    {"G", QUANTITY_DECIMAL, 9},  {"T", QUANTITY_DECIMAL, 12}, {"P", QUANTITY_DECIMAL, 15},
    {"E", QUANTITY_DECIMAL, 18}, {"Ki", QUANTITY_BINARY, 1},  {"Mi", QUANTITY_BINARY, 2},
    {"Gi", QUANTITY_BINARY, 3},  {"Ti", QUANTITY_BINARY, 4},  {"Pi", QUANTITY_BINARY, 5},
    {"Ei", QUANTITY_BINARY, 6},
};

static const struct unit *unit_of(enum quantity_form form, int power)
{
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (units[i].form == form && units[i].power == power)
            return &units[i];
    return NULL;
}

static bool parse_unit(struct span s, struct unit *unit)
{
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (span_eq(s, span_of(units[i].suffix))) {
            *unit = units[i];
            return true;
        }
    }
    int64_t power;
    if (s.n < 2 || (s.p[0] != 'e' && s.p[0] != 'E'))
        return false;
    struct span digits = {s.p + 1, s.n - 1};
    if (digits.p[0] == '+') {
        digits.p++;
        digits.n--;
    }
    if (!span_i64(digits, &power) || power < -1000 || power > 1000)
        return false;
    *unit = (struct unit){"", QUANTITY_EXPONENT, (int)power};
    return true;
}

/* The largest amount, as in Kubernetes: 2^63 - 1 whole units. */
static wide limit(void)
{
    return (wide)INT64_MAX * NANO;
}

/* v * base^power, rounded up when power is negative. */
static wide scale(wide v, int base, int power)
{
    for (; power > 0 && v; power--) {
        if (v > limit() / base)
            return limit();
        v *= base;
    }
    bool cut = false;
    for (; power < 0 && v; power++) {
        cut |= v % base != 0;
        v /= base;
    }
    return v + cut;
}

/* Reads "12.34" as nano and advances *s. False: there is no digit. */
static bool parse_number(struct span *s, wide *nano, int *more_digits)
{
    wide v = 0;
    size_t i = 0;
    int digits = 0, after = 0;
    bool point = false;
    for (; i < s->n; i++) {
        char c = s->p[i];
        if (c == '.' && !point) {
            point = true;
            continue;
        }
        if (c < '0' || c > '9')
            break;
        digits++;
        if (v <= limit()) { /* the amount is capped, so further digits do not matter */
            v = v * 10 + (c - '0');
            after += point;
        } else if (!point) {
            after--;
        }
    }
    *s = (struct span){s->p + i, s->n - i};
    *nano = v;
    *more_digits = after;
    return digits > 0;
}

bool sim_quantity_parse(struct span s, struct quantity *q)
{
    bool negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+'))
        s = (struct span){s.p + 1, s.n - 1};
    wide v;
    int after;
    struct unit unit;
    if (s.n > 256 || !parse_number(&s, &v, &after) || !parse_unit(s, &unit))
        return false;
    if (unit.form == QUANTITY_BINARY) {
        v = scale(v, 1024, unit.power);
        v = scale(v, 10, 9 - after);
    } else {
        v = scale(v, 10, unit.power + 9 - after);
    }
    if (v > limit())
        v = limit();
    *q = (struct quantity){negative ? -v : v, unit.form};
    return true;
}

bool sim_quantity_is_whole(struct quantity q)
{
    return q.nano % NANO == 0;
}

int sim_quantity_cmp(struct quantity a, struct quantity b)
{
    return (a.nano > b.nano) - (a.nano < b.nano);
}

/* Decimal; a value of more than 64 bits in two parts of 18 digits (limit() has 28). */
static void add_wide(struct buf *out, wide v)
{
    static const wide half = 1000000000000000000;
    if (v > INT64_MIN && v <= INT64_MAX) {
        buf_add_i64(out, (int64_t)v);
        return;
    }
    buf_add_i64(out, (int64_t)(v / half));
    wide rest = v % half;
    buf_printf(out, "%018lld", (long long)(rest < 0 ? -rest : rest));
}

static void add_decimal(struct buf *out, wide v, bool exponent)
{
    int power = -9;
    for (; v % 10 == 0; v /= 10)
        power++;
    for (; power % 3; power--)
        v *= 10;
    add_wide(out, v);
    if (!exponent)
        buf_adds(out, unit_of(QUANTITY_DECIMAL, power)->suffix);
    else if (power)
        buf_printf(out, "e%d", power);
}

void sim_quantity_format(struct quantity q, struct buf *out)
{
    wide v = q.nano, whole = q.nano / NANO;
    if (v == 0) {
        buf_addc(out, '0');
        return;
    }
    bool small = whole > -1024 && whole < 1024;
    if (q.form != QUANTITY_BINARY || small || !sim_quantity_is_whole(q)) {
        add_decimal(out, v, q.form == QUANTITY_EXPONENT);
        return;
    }
    int power = 0;
    for (; whole % 1024 == 0 && power < 6; whole /= 1024)
        power++;
    buf_add_i64(out, (int64_t)whole);
    if (power)
        buf_adds(out, unit_of(QUANTITY_BINARY, power)->suffix);
}
