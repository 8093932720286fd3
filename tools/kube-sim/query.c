/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/query_priv.h"

#include <stdlib.h>

#include "base/mem.h"

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place; keeps a '%' that two hex digits do not follow. */
static struct span decode(char *p, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '%' && i + 2 < n && hex(p[i + 1]) >= 0 && hex(p[i + 2]) >= 0) {
            p[out++] = (char)(hex(p[i + 1]) << 4 | hex(p[i + 2]));
            i += 2;
        } else {
            p[out++] = p[i] == '+' ? ' ' : p[i];
        }
    }
    return (struct span){p, out};
}

void sim_query_init(struct query *q, const char *raw)
{
    *q = (struct query){.text = xstrdup(raw ? raw : "")};
    struct span rest = span_of(q->text);
    while (rest.n && q->n < QUERY_MAX) {
        struct span value = span_cut(&rest, '&');
        struct span key = span_cut(&value, '=');
        if (!key.n)
            continue;
        q->pairs[q->n].key = decode((char *)key.p, key.n);
        q->pairs[q->n++].value = decode((char *)value.p, value.n);
    }
}

void sim_query_fini(struct query *q)
{
    free(q->text);
    *q = (struct query){0};
}

static size_t find(const struct query *q, const char *key)
{
    size_t i = 0;
    while (i < q->n && !span_eq(q->pairs[i].key, span_of(key)))
        i++;
    return i;
}

struct span sim_query_get(const struct query *q, const char *key)
{
    size_t i = find(q, key);
    return i < q->n && q->pairs[i].value.n ? q->pairs[i].value : (struct span){NULL, 0};
}

bool sim_query_has(const struct query *q, const char *key)
{
    return find(q, key) < q->n;
}

bool sim_query_bool(const struct query *q, const char *key)
{
    struct span v = sim_query_get(q, key);
    return sim_query_has(q, key) && !span_eq_nocase(v, SPAN("false")) &&
           !span_eq(v, SPAN("0"));
}

int sim_query_int(const struct query *q, const char *key, int64_t otherwise, int64_t *out,
                  struct err *err)
{
    struct span v = sim_query_get(q, key);
    *out = otherwise;
    if (v.p && !span_i64(v, out))
        return err_set(err, ERR_INVALID,
                       "strconv.ParseInt: parsing \"%.*s\": invalid syntax", SPAN_ARG(v));
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static double take_number(struct span *s)
{
    double value = 0, place = 1;
    size_t i = 0;
    for (; i < s->n && is_digit(s->p[i]); i++)
        value = value * 10 + (s->p[i] - '0');
    if (i < s->n && s->p[i] == '.')
        for (i++; i < s->n && is_digit(s->p[i]); i++)
            value += (s->p[i] - '0') * (place /= 10);
    *s = (struct span){s->p + i, s->n - i};
    return value;
}

static double take_unit(struct span *s)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1},   {"us", 1e3}, {"\u00b5s", 1e3}, {"\u03bcs", 1e3},
                 {"ms", 1e6}, {"s", 1e9},  {"m", 60e9},      {"h", 3600e9}};
    struct span unit = {s->p, 0};
    while (unit.n < s->n && !is_digit(s->p[unit.n]) && s->p[unit.n] != '.')
        unit.n++;
    *s = (struct span){s->p + unit.n, s->n - unit.n};
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (span_eq(unit, span_of(units[i].name)))
            return units[i].ns;
    return 0;
}

/* Reads a number with its unit, such as "1m" of "1m30s". */
static bool take_duration(struct span *s, double *ns)
{
    if (!is_digit(*s->p) && (*s->p != '.' || s->n < 2 || !is_digit(s->p[1])))
        return false;
    double number = take_number(s), unit = take_unit(s);
    *ns += number * unit;
    return unit > 0 && *ns < (double)INT64_MAX;
}

int sim_query_timeout_ns(const struct query *q, int64_t *ns, struct err *err)
{
    struct span v = sim_query_get(q, "timeout"), rest = v;
    bool negative = v.n && v.p[0] == '-', good = true;
    double sum = 0;
    *ns = 0;
    if (!v.n || span_eq(v, SPAN("0")))
        return 0;
    if (negative || v.p[0] == '+')
        rest = (struct span){v.p + 1, v.n - 1};
    do
        good = rest.n && take_duration(&rest, &sum);
    while (good && rest.n);
    if (!good)
        return err_set(err, ERR_INVALID,
                       "invalid timeout specified in the request URL - time: "
                       "invalid duration \"%.*s\"",
                       SPAN_ARG(v));
    *ns = negative ? 0 : (int64_t)sum;
    return 0;
}
