/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes a pod's nodeSelector, required node affinity and tolerations exclude. */
#include "domain/terms.h"

#include <string.h>

#include "base/hash.h"
#include "base/jwrite.h"
#include "base/mem.h"
#include "domain/fields.h"

/* The words of a node: labels, then taints. Of a pod: tolerations, then expressions, which have
 * their values behind them. */
struct terms {
    uint32_t n, n_first; /* words: all, and of labels or tolerations. 0: too many */
    uint64_t words[];
};

struct label {
    uint64_t key, value;
};
struct taint { /* and toleration, where 0 is any */
    uint64_t key, value, effect, op;
};
struct expression {
    uint64_t group; /* 0: nodeSelector. Of the others, one whole group must match */
    uint64_t key;   /* NAME: the node's name */
    uint64_t op, n_values;
};

enum { WORDS_MAX = 1024, TEXT_MAX = 64 * WORDS_MAX };
enum { IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GT, LT, EQUAL, NEVER };
#define NAME   UINT64_C(0)
#define CORDON SPAN("node.kubernetes.io/unschedulable")

/* A number is odd and can be compared. No word is 0. */
static uint64_t word_of(struct span s)
{
    const int64_t most = INT64_MAX >> 1;
    int64_t n;
    if (span_i64(s, &n) && n < most && n > -most &&
        (s.n == 1 || s.p[s.p[0] == '-'] != '0'))
        return (uint64_t)n << 1 | 1;
    return (hash_bytes(0, s.p, s.n) | 2) & ~UINT64_C(1);
}

/* -- reading -- */

struct reading {
    struct buf first, second, affinity;
    uint64_t group;
};

struct texts {
    struct span key, value, effect, op;
    struct buf values;
};

static void read_value(struct field_reader *r, const struct field *f, void *at)
{
    struct span value;
    if (!jread_text(r->j, f->where, r->a, &value))
        return;
    const uint64_t word = word_of(value);
    buf_add(at, &word, sizeof word);
}

#define TEXT(key, member) FIELD("", key, texts, member)
static const struct field texts_fields[] = {
    {TEXT("key", key)},
    {TEXT("value", value)},
    {TEXT("effect", effect)},
    {TEXT("operator", op)},
    {TEXT("values", values), .type = FIELD_LIST, .read = read_value},
    FIELDS_END,
};

static uint64_t operator_of(struct span text)
{
    static const char *const names[] = {"In", "NotIn", "Exists", "DoesNotExist",
                                        "Gt", "Lt",    "Equal"};
    uint64_t i = 0;
    while (i < NEVER && !span_eq(text, span_of(names[i])))
        i++;
    return i;
}

/* Of a node, or a nodeSelector. */
static void read_labels(struct field_reader *r, const struct field *f, void *at)
{
    struct reading *q = at;
    struct jread_str key;
    struct span value;
    jread_object(r->j, f->where);
    while (jread_member(r->j, &key)) {
        if (!jread_text(r->j, f->where, r->a, &value))
            continue;
        struct label label = {word_of(jread_span(key, r->a)), word_of(value)};
        const struct expression e = {0, label.key, IN, 1};
        if (span_eq(f->name, SPAN("labels"))) {
            buf_add(&q->first, &label, sizeof label);
        } else {
            buf_add(&q->second, &e, sizeof e);
            buf_add(&q->second, &label.value, sizeof label.value);
        }
    }
}

/* Or a toleration. */
static void read_taint(struct field_reader *r, const struct field *f, void *at)
{
    struct reading *q = at;
    struct texts t = {0};
    const bool of_node = span_eq(f->name, SPAN("taints"));
    fields_read(r, f->where, texts_fields, &t);
    const struct taint is = {t.key.n ? word_of(t.key) : 0, word_of(t.value),
                             t.effect.n ? word_of(t.effect) : 0,
                             t.op.n ? operator_of(t.op) : EQUAL};
    if (of_node ? !span_eq(t.effect, SPAN("PreferNoSchedule"))
                : is.op == EXISTS || (is.op == EQUAL && is.key))
        buf_add(of_node ? &q->second : &q->first, &is, sizeof is);
    buf_fini(&t.values);
}

static void read_expression(struct field_reader *r, const struct field *f, void *at)
{
    struct reading *q = at;
    struct texts t = {0};
    fields_read(r, f->where, texts_fields, &t);
    const bool field = span_eq(f->name, SPAN("matchFields"));
    const bool valid = field ? span_eq(t.key, SPAN("metadata.name")) : t.key.n;
    const struct expression e = {q->group, field ? NAME : word_of(t.key),
                                 valid ? operator_of(t.op) : NEVER,
                                 t.values.n / sizeof(uint64_t)};
    buf_add(&q->affinity, &e, sizeof e);
    buf_add(&q->affinity, t.values.p, t.values.n);
    buf_fini(&t.values);
}

#define HERE(path, key) FIELD(path, key, reading, first)
#define LIST_OF(f)      .type = FIELD_LIST, .read = (f)
static const struct field term_fields[] = {
    {HERE("spec.affinity.", "matchExpressions"), LIST_OF(read_expression)},
    {HERE("spec.affinity.", "matchFields"), LIST_OF(read_expression)},
    FIELDS_END,
};

/* A term without expressions matches no node. */
static void read_term(struct field_reader *r, const struct field *f, void *at)
{
    ((struct reading *)at)->group++;
    fields_read(r, f->where, term_fields, at);
}

static const struct field required_fields[] = {
    {HERE("spec.affinity.", "nodeSelectorTerms"), LIST_OF(read_term)},
    FIELDS_END,
};

/* Nor do no terms. */
static void read_required(struct field_reader *r, const struct field *f, void *at)
{
    struct reading *q = at;
    const struct expression never = {++q->group, NAME, NEVER, 0};
    if (jread_peek(r->j) == JREAD_OBJECT)
        buf_add(&q->affinity, &never, sizeof never);
    fields_read(r, f->where, required_fields, at);
}

static const struct field terms_fields[] = {
    [TERMS_OF_LABELS] = {HERE("metadata.", "labels"), .type = FIELD_OTHER,
                         .read = read_labels},
    [TERMS_OF_TAINTS] = {HERE("spec.", "taints"), LIST_OF(read_taint)},
    [TERMS_OF_SELECTOR] = {HERE("spec.", "nodeSelector"), .type = FIELD_OTHER,
                           .read = read_labels},
    [TERMS_OF_TOLERATIONS] = {HERE("spec.", "tolerations"), LIST_OF(read_taint)},
    [TERMS_OF_REQUIRED] = {HERE("spec.affinity.", "required"), .type = FIELD_OTHER,
                           .read = read_required},
    FIELDS_END,
};
_Static_assert(offsetof(struct reading, first) == 0, "so that it is the reading");

struct terms *terms_new(const struct span texts[TERMS_TEXTS])
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf object = {0};
    struct jwrite w = {.out = &object};
    struct reading q = {0};
    struct terms *t = NULL;
    struct jread j;
    size_t length = 0;
    jwrite_object(&w, NULL);
    for (int i = 0; i < TERMS_TEXTS; i++) {
        length += texts[i].n;
        if (texts[i].n && length <= TEXT_MAX)
            jwrite_raw(&w, terms_fields[i].name.p, texts[i]);
    }
    jwrite_object_end(&w);
    jread_init(&j, object.p, object.n);
    fields_read(&(struct field_reader){.j = &j, .a = &a}, "object", terms_fields, &q);
    buf_add(&q.second, q.affinity.p, q.affinity.n);
    const size_t bytes = q.first.n + q.second.n,
                 n = length > TEXT_MAX ? SIZE_MAX : bytes / sizeof *t->words;
    if (n > WORDS_MAX) {
        t = xcalloc(1, sizeof *t);
    } else if (n) {
        t = xcalloc(1, sizeof *t + bytes);
        t->n = (uint32_t)n;
        t->n_first = (uint32_t)(q.first.n / sizeof(uint64_t));
        memcpy(t->words, q.first.n ? q.first.p : "", q.first.n);
        memcpy(t->words + t->n_first, q.second.n ? q.second.p : "", q.second.n);
    }
    buf_fini(&q.first);
    buf_fini(&q.second);
    buf_fini(&q.affinity);
    return t;
}

size_t terms_size(const struct terms *t)
{
    return t ? sizeof *t + t->n * sizeof *t->words : 0;
}

bool terms_equal(const struct terms *a, const struct terms *b)
{
    return terms_size(a) == terms_size(b) && (!a || !memcmp(a, b, terms_size(a)));
}

/* -- matching -- */

/* `value` NULL: the node has no such label. Gt and Lt: one value, and both are numbers. */
static bool expression_matches(const struct expression *e, const uint64_t *value)
{
    const uint64_t *values = (const uint64_t *)(e + 1);
    bool found = false;
    for (uint64_t i = 0; value && i < e->n_values; i++)
        found |= values[i] == *value;
    const bool numbers = value && e->n_values == 1 && *value & values[0] & 1;
    switch (e->op) {
    case IN:
        return found;
    case NOT_IN:
        return !found;
    case EXISTS:
        return value;
    case DOES_NOT_EXIST:
        return !value;
    case GT:
        return numbers && (int64_t)*value > (int64_t)values[0];
    case LT:
        return numbers && (int64_t)*value < (int64_t)values[0];
    default:
        return false;
    }
}

static const uint64_t *value_of(const struct terms *node, uint64_t key)
{
    const struct label *label = node ? (const void *)node->words : NULL;
    for (uint32_t i = 0; node && i < node->n_first; i += 2, label++)
        if (label->key == key)
            return &label->value;
    return NULL;
}

static bool is_selected(const struct terms *pod, const struct terms *node,
                        struct span name)
{
    const uint64_t *at = pod ? pod->words + pod->n_first : NULL;
    const uint64_t *end = pod ? pod->words + pod->n : NULL, name_word = word_of(name);
    uint64_t group = 0;
    bool matches = true, any = false; /* any: of the groups before, but for the first */
    while (at < end) {
        const struct expression *e = (const void *)at;
        if (e->group != group && !group && !matches)
            return false;
        if (e->group != group) {
            any |= group && matches;
            group = e->group;
            matches = true;
        }
        matches = matches && expression_matches(
                                 e, e->key == NAME ? &name_word : value_of(node, e->key));
        at += sizeof *e / sizeof *at + e->n_values;
    }
    return matches || any;
}

static bool tolerates(const struct terms *pod, const struct taint *taint)
{
    const struct taint *t = pod ? (const void *)pod->words : NULL;
    for (uint32_t i = 0; pod && i < pod->n_first; i += 4, t++)
        if ((!t->key || t->key == taint->key) &&
            (t->op == EXISTS || t->value == taint->value) &&
            (!t->effect || t->effect == taint->effect))
            return true;
    return false;
}

bool terms_tolerate_cordon(const struct terms *pod)
{
    return tolerates(pod, &(struct taint){word_of(CORDON), word_of(SPAN("")),
                                          word_of(SPAN("NoSchedule")), 0});
}

enum terms_verdict terms_judge(const struct terms *pod, const struct terms *node,
                               struct span name)
{
    if ((pod && !pod->n) || (node && !node->n))
        return TERMS_UNKNOWN;
    if (!is_selected(pod, node, name))
        return TERMS_SELECTOR;
    const struct taint *taint = node ? (const void *)(node->words + node->n_first) : NULL;
    for (uint32_t i = node ? node->n_first : 0; node && i < node->n; i += 4, taint++)
        if (taint->key != word_of(CORDON) && !tolerates(pod, taint))
            return TERMS_TAINTS;
    return TERMS_ALLOW;
}
