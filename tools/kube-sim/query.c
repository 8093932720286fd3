/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/opt.h"
#include "wire/base64.h"

/* The query of a request: options, field and label selectors, continue tokens. */

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

int sim_query_timeout_ms(const struct query *q, int64_t *ms, struct err *err)
{
    struct span v = sim_query_get(q, "timeout");
    *ms = 0;
    return v.n ? opt_parse_duration(v, ms, err) : 0;
}

enum op { OP_EQUAL, OP_UNEQUAL, OP_EXISTS, OP_ABSENT };

struct selector_term {
    int field; /* index of a field; -1: a label */
    struct span key;
    enum op op;
    struct span value;
};

static void add(struct selector *s, struct selector_term term)
{
    MEM_GROW(s->terms, s->cap, s->n + 1);
    s->terms[s->n++] = term;
}

/* Reads a, !a, a=b, a==b or a!=b. */
static struct selector_term read_term(struct span text)
{
    text = span_trim(text);
    struct selector_term t = {.field = -1, .op = OP_EXISTS, .key = text};
    const char *eq = text.n ? memchr(text.p, '=', text.n) : NULL;
    if (!eq) {
        if (span_starts(text, SPAN("!"))) {
            t.op = OP_ABSENT;
            t.key = span_trim((struct span){text.p + 1, text.n - 1});
        }
        return t;
    }
    size_t at = (size_t)(eq - text.p);
    t.op = at && eq[-1] == '!' ? OP_UNEQUAL : OP_EQUAL;
    t.key = span_trim((struct span){text.p, at - (t.op == OP_UNEQUAL)});
    t.value = (struct span){eq + 1, text.n - at - 1};
    if (t.op == OP_EQUAL && span_starts(t.value, SPAN("=")))
        t.value = (struct span){t.value.p + 1, t.value.n - 1};
    return t;
}

static int parse_fields(struct selector *s, const struct kind *kind, struct span text,
                        struct err *err)
{
    while (text.n) {
        struct span term = span_cut(&text, ',');
        struct selector_term t = read_term(term);
        if (!span_trim(term).n)
            continue;
        if (t.op == OP_EXISTS || t.op == OP_ABSENT)
            return err_set(err, ERR_INVALID,
                           "invalid selector: '%.*s'; can't understand '%.*s'",
                           SPAN_ARG(term), SPAN_ARG(term));
        t.field = sim_kind_field(kind, t.key);
        if (t.field < 0)
            return err_set(err, ERR_INVALID, "field label not supported: %.*s",
                           SPAN_ARG(t.key));
        add(s, t);
    }
    return 0;
}

static int parse_labels(struct selector *s, struct span text, struct err *err)
{
    struct span rest = text;
    while (rest.p && span_trim(text).n) {
        struct selector_term t = read_term(span_cut(&rest, ','));
        t.value = span_trim(t.value);
        if (!sim_name_is_qualified(t.key) || !sim_name_is_label_value(t.value))
            return err_set(err, ERR_INVALID, "unable to parse requirement: \"%.*s\"",
                           SPAN_ARG(text));
        add(s, t);
    }
    return 0;
}

int sim_selector_init(struct selector *s, const struct kind *kind, struct span ns,
                      struct span labels, struct span fields, struct err *err)
{
    *s = (struct selector){.text = xmalloc(ns.n + labels.n + fields.n + 1)};
    char *at = s->text;
    struct span *parts[] = {&ns, &labels, &fields};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (parts[i]->n)
            memcpy(at, parts[i]->p, parts[i]->n);
        parts[i]->p = parts[i]->n ? at : NULL;
        at += parts[i]->n;
    }
    s->ns = ns;
    return parse_labels(s, labels, err) || parse_fields(s, kind, fields, err) ? -1 : 0;
}

void sim_selector_fini(struct selector *s)
{
    free(s->text);
    free(s->terms);
    *s = (struct selector){0};
}

static const struct object_label *find_label(const struct object *o, struct span key)
{
    for (size_t i = 0; i < o->n_labels; i++)
        if (span_eq(o->labels[i].key, key))
            return &o->labels[i];
    return NULL;
}

static bool match_label(const struct selector_term *t, const struct object *o)
{
    const struct object_label *label = find_label(o, t->key);
    switch (t->op) {
    case OP_EXISTS:
        return label;
    case OP_ABSENT:
        return !label;
    case OP_EQUAL:
        return label && span_eq(label->value, t->value);
    case OP_UNEQUAL:
        break;
    }
    return !label || !span_eq(label->value, t->value);
}

bool sim_selector_match(const struct selector *s, const struct object *o)
{
    if (s->ns.p && !span_eq(s->ns, o->ns))
        return false;
    for (size_t i = 0; i < s->n; i++) {
        const struct selector_term *t = &s->terms[i];
        bool match = t->field < 0
                         ? match_label(t, o)
                         : span_eq(t->value, o->fields[t->field]) == (t->op == OP_EQUAL);
        if (!match)
            return false;
    }
    return true;
}

void sim_token_write(struct buf *out, uint64_t rv, struct span last)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "%llu/%.*s", (unsigned long long)rv, SPAN_ARG(last));
    base64_encode(buf_span(&text), out);
}

bool sim_token_read(struct span text, uint64_t *rv, struct buf *start)
{
    cleanup_buf struct buf plain = {0};
    int64_t n;
    if (!base64_decode(text, &plain))
        return false;
    struct span rest = buf_span(&plain);
    if (!span_i64(span_cut(&rest, '/'), &n) || n <= 0 || !rest.n)
        return false;
    *rv = (uint64_t)n;
    buf_add_span(start, rest);
    buf_addc(start, '\0'); /* the first key after it */
    return true;
}
