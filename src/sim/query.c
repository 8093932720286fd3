/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/query_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/opt.h"

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place; a '%' that no two digits follow stays. */
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

/* One number with its unit, such as "1m" of "1m30s". */
static bool take_duration(struct span *s, int64_t *ms)
{
    size_t n = 0;
    while (n < s->n && s->p[n] >= '0' && s->p[n] <= '9')
        n++;
    while (n < s->n && (s->p[n] < '0' || s->p[n] > '9'))
        n++;
    struct span part = {s->p, n};
    *s = (struct span){s->p + n, s->n - n};
    return opt_parse_duration(part, ms, NULL) == 0;
}

int sim_query_timeout_ms(const struct query *q, int64_t *ms, struct err *err)
{
    struct span v = sim_query_get(q, "timeout");
    *ms = 0;
    while (v.n) {
        int64_t part;
        if (!take_duration(&v, &part) || __builtin_add_overflow(*ms, part, ms))
            return err_set(err, ERR_INVALID,
                           "invalid timeout specified in the request URL - time: "
                           "invalid duration \"%.*s\"",
                           SPAN_ARG(sim_query_get(q, "timeout")));
    }
    return 0;
}
