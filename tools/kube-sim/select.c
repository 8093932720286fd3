/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/select_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "kube-sim/names_priv.h"

enum op { OP_IN, OP_NOT_IN, OP_EXISTS, OP_ABSENT, OP_GREATER, OP_LESS };

struct selector_term {
    int field; /* index of a field; -1: a label */
    struct span key;
    enum op op;
    struct span values; /* joined by commas, without space; one for a field */
};

static void add(struct selector *s, struct selector_term term)
{
    MEM_GROW(s->terms, s->cap, s->n + 1);
    s->terms[s->n++] = term;
}

/* -- fields: a=b,c==d,e!=f -- */

static int field_term(struct selector *s, const struct kind *kind, struct span text,
                      struct err *err)
{
    const char *eq = memchr(text.p, '=', text.n);
    if (!eq)
        return err_set(err, ERR_INVALID,
                       "invalid selector: '%.*s'; can't understand '%.*s'",
                       SPAN_ARG(text), SPAN_ARG(text));
    size_t at = (size_t)(eq - text.p);
    bool unequal = at && text.p[at - 1] == '!';
    struct span key = {text.p, at - unequal};
    struct span value = {text.p + at + 1, text.n - at - 1};
    if (value.n && value.p[0] == '=' && !unequal)
        value = (struct span){value.p + 1, value.n - 1};
    key = span_trim(key);
    int field = sim_kind_field(kind, key);
    if (field < 0)
        return err_set(err, ERR_INVALID, "field label not supported: %.*s",
                       SPAN_ARG(key));
    add(s, (struct selector_term){field, key, unequal ? OP_NOT_IN : OP_IN, value});
    return 0;
}

static int parse_fields(struct selector *s, const struct kind *kind, struct span text,
                        struct err *err)
{
    while (text.n) {
        struct span term = span_cut(&text, ',');
        if (span_trim(term).n && field_term(s, kind, term, err))
            return -1;
    }
    return 0;
}

/* -- labels: a, !a, a=b, a==b, a!=b, a in (b,c), a notin (b), a>1, a<1 -- */

static int bad(struct span text, struct err *err)
{
    return err_set(err, ERR_INVALID, "unable to parse requirement: \"%.*s\"",
                   SPAN_ARG(text));
}

static bool is_symbol(char c)
{
    return c == '=' || c == '!' || c == '<' || c == '>' || c == '(' || c == ')' ||
           c == ',';
}

static void skip_space(struct span *s)
{
    while (s->n && (s->p[0] == ' ' || s->p[0] == '\t'))
        *s = (struct span){s->p + 1, s->n - 1};
}

/* The word that comes next: up to white space or a symbol; may be empty. */
static struct span word(struct span *s)
{
    skip_space(s);
    size_t n = 0;
    while (n < s->n && s->p[n] != ' ' && s->p[n] != '\t' && !is_symbol(s->p[n]))
        n++;
    struct span w = {s->p, n};
    *s = (struct span){s->p + n, s->n - n};
    skip_space(s);
    return w;
}

static bool take(struct span *s, const char *symbol)
{
    if (!span_starts(*s, span_of(symbol)))
        return false;
    size_t n = strlen(symbol);
    *s = (struct span){s->p + n, s->n - n};
    return true;
}

/* "(a, b)": the values without space, written over the text itself. */
static bool value_set(struct span *s, struct span *values)
{
    skip_space(s);
    if (!take(s, "("))
        return false;
    char *out = (char *)s->p, *at = out; /* our own copy of the text */
    do {
        struct span v = word(s);
        if (!sim_name_is_label_value(v))
            return false;
        if (at != out)
            *at++ = ',';
        memmove(at, v.p, v.n);
        at += v.n;
    } while (take(s, ","));
    *values = (struct span){out, (size_t)(at - out)};
    return take(s, ")");
}

static bool compare_term(struct span *s, struct selector_term *term)
{
    static const struct {
        const char *symbol;
        enum op op;
    } ops[] = {{"==", OP_IN},
               {"=", OP_IN},
               {"!=", OP_NOT_IN},
               {">", OP_GREATER},
               {"<", OP_LESS}};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        if (!take(s, ops[i].symbol))
            continue;
        term->op = ops[i].op;
        term->values = word(s);
        int64_t number;
        if (term->op >= OP_GREATER)
            return span_i64(term->values, &number);
        return sim_name_is_label_value(term->values);
    }
    return false;
}

static bool label_term(struct span *s, struct selector_term *term)
{
    skip_space(s);
    bool absent = take(s, "!");
    term->key = word(s);
    if (!sim_name_is_qualified(term->key))
        return false;
    term->op = absent ? OP_ABSENT : OP_EXISTS;
    if (!s->n || s->p[0] == ',')
        return true;
    if (absent)
        return false;
    if (is_symbol(s->p[0]))
        return compare_term(s, term);
    struct span op = word(s);
    term->op = span_eq(op, SPAN("in")) ? OP_IN : OP_NOT_IN;
    return (term->op == OP_IN || span_eq(op, SPAN("notin"))) &&
           value_set(s, &term->values);
}

static int parse_labels(struct selector *s, struct span text, struct err *err)
{
    struct span rest = text;
    skip_space(&rest);
    while (rest.n) {
        struct selector_term term = {.field = -1};
        if (!label_term(&rest, &term))
            return bad(text, err);
        add(s, term);
        skip_space(&rest);
        if (rest.n && (!take(&rest, ",") || !span_trim(rest).n))
            return bad(text, err);
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

static bool holds(struct span values, struct span v)
{
    do {
        if (span_eq(span_cut(&values, ','), v))
            return true;
    } while (values.p);
    return false;
}

static const struct object_label *find_label(const struct object *o, struct span key)
{
    for (size_t i = 0; i < o->n_labels; i++)
        if (span_eq(o->labels[i].key, key))
            return &o->labels[i];
    return NULL;
}

static bool match_order(const struct selector_term *t, struct span value)
{
    int64_t have, want;
    if (!span_i64(value, &have) || !span_i64(t->values, &want))
        return false;
    return t->op == OP_GREATER ? have > want : have < want;
}

static bool match_label(const struct selector_term *t, const struct object *o)
{
    const struct object_label *label = find_label(o, t->key);
    switch (t->op) {
    case OP_EXISTS:
        return label;
    case OP_ABSENT:
        return !label;
    case OP_IN:
        return label && holds(t->values, label->value);
    case OP_NOT_IN:
        return !label || !holds(t->values, label->value);
    default:
        return label && match_order(t, label->value);
    }
}

bool sim_selector_match(const struct selector *s, const struct object *o)
{
    if (s->ns.p && !span_eq(s->ns, o->ns))
        return false;
    for (size_t i = 0; i < s->n; i++) {
        const struct selector_term *t = &s->terms[i];
        bool match = t->field < 0
                         ? match_label(t, o)
                         : span_eq(t->values, o->fields[t->field]) == (t->op == OP_IN);
        if (!match)
            return false;
    }
    return true;
}
