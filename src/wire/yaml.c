/* SPDX-License-Identifier: Apache-2.0 */

/*
 * YAML files: parsed to a tree, read by key, converted to JSON.
 */

#include <stdlib.h>
#include <yaml.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "wire/yaml.h"

/* -- Parse -- */

enum {
    YAML_MAX_DEPTH = 64,
    YAML_MAX_BYTES = 10 << 20,
    YAML_MAX_NODES =
        1 << 20, /* a node takes about 100 bytes, in a file it may take two */
};

struct yaml {
    char *name;
    struct arena arena; /* nodes and texts */
    struct yaml_node **documents;
    size_t n, cap;
};

/*
 * Builds a tree from libyaml's events. Open sequences and mappings are frames on a stack
 * of fixed depth; the end of a frame moves its items into the arena.
 */

struct frame {
    struct yaml_node *node;
    struct yaml_node **items;
    struct span *keys;
    size_t items_cap, keys_cap, n_keys;
    struct map seen; /* the nodes of the keys */
};

struct reader {
    struct yaml *y;
    struct frame frames[YAML_MAX_DEPTH];
    size_t depth;
    size_t nodes;
    struct yaml_node *root;
    uint64_t seed;
};

static unsigned line_of(const yaml_event_t *e)
{
    return (unsigned)e->start_mark.line + 1;
}

static int fail_at(const struct reader *r, const yaml_event_t *e, struct err *err,
                   const char *why)
{
    return err_set(err, ERR_INVALID, "%s:%u: %s", r->y->name, line_of(e), why);
}

static struct frame *top(struct reader *r)
{
    return r->depth ? &r->frames[r->depth - 1] : NULL;
}

static struct yaml_node *node_new(struct reader *r, const yaml_event_t *e,
                                  enum yaml_type type)
{
    struct yaml_node *node = arena_zalloc(&r->y->arena, sizeof *node);
    node->type = type;
    node->line = line_of(e);
    node->column = (unsigned)e->start_mark.column + 1;
    node->last_line = (unsigned)e->end_mark.line + 1;
    if (e->type == YAML_SCALAR_EVENT && !e->end_mark.column &&
        e->end_mark.line > e->start_mark.line)
        node->last_line--; /* the end mark of a block scalar is at the next line */
    node->file = r->y->name;
    return node;
}

/* The tag without the prefix of the core schema; "" for no tag or "!", "other" for tags
 * with another prefix. */
static struct span core_tag(const yaml_char_t *tag)
{
    static const struct span prefix = SPAN(YAML_DEFAULT_SCALAR_TAG);
    struct span s = span_of((const char *)tag);
    size_t common = prefix.n - strlen("str");
    if (!s.n || span_eq(s, SPAN("!")))
        return SPAN("");
    if (!span_starts(s, (struct span){prefix.p, common}))
        return SPAN("other");
    return (struct span){s.p + common, s.n - common};
}

static bool one_of(struct span s, const char *const *words)
{
    for (; *words; words++)
        if (span_eq(s, span_of(*words)))
            return true;
    return false;
}

static int new_scalar(struct reader *r, const yaml_event_t *e, struct yaml_node **out,
                      struct err *err)
{
    static const char *const typed[] = {"null", "bool", "int", "float", NULL};
    struct span text = {(const char *)e->data.scalar.value, e->data.scalar.length};
    struct span tag = core_tag(e->data.scalar.tag);
    if (e->data.scalar.anchor)
        return fail_at(r, e, err, "anchors are not allowed");
    struct yaml_node *node = node_new(r, e, YAML_SCALAR);
    node->text = arena_copy(&r->y->arena, text);
    if (!e->data.scalar.tag)
        node->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    else if (one_of(tag, typed))
        node->plain = true;
    else if (tag.n && !span_eq(tag, SPAN("str")))
        return fail_at(r, e, err, "unsupported tag");
    *out = node;
    return 0;
}

static int push(struct reader *r, const yaml_event_t *e, struct yaml_node *node,
                bool flow, const yaml_char_t *anchor, const yaml_char_t *tag,
                const char *own_tag, struct err *err)
{
    struct span core = core_tag(tag);
    if (anchor)
        return fail_at(r, e, err, "anchors are not allowed");
    if (core.n && !span_eq(core, span_of(own_tag)))
        return fail_at(r, e, err, "unsupported tag");
    if (r->depth == YAML_MAX_DEPTH)
        return fail_at(r, e, err, "nested too deeply");
    node->flow = flow;
    r->frames[r->depth] = (struct frame){.node = node};
    map_init(&r->frames[r->depth++].seen, r->seed, offsetof(struct yaml_node, text));
    return 0;
}

static int add_key(struct reader *r, const yaml_event_t *e, struct err *err)
{
    struct frame *f = top(r);
    struct yaml_node *node;
    if (e->type != YAML_SCALAR_EVENT)
        return fail_at(r, e, err, "key: expected a scalar");
    if (new_scalar(r, e, &node, err))
        return -1;
    if (node->plain && !node->text.n)
        return fail_at(r, e, err, "empty key");
    if (node->plain && span_eq(node->text, SPAN("<<")))
        return fail_at(r, e, err, "merge keys are not allowed");
    if (map_get(&f->seen, node->text))
        return err_set(err, ERR_INVALID, "%s:%u: duplicate key \"%.*s\"", r->y->name,
                       node->line, SPAN_ARG(node->text));
    map_set(&f->seen, node);
    MEM_GROW(f->keys, f->keys_cap, f->n_keys + 1);
    f->keys[f->n_keys++] = node->text;
    return 0;
}

static void attach(struct reader *r, struct yaml_node *node)
{
    struct frame *f = top(r);
    if (!f) {
        r->root = node;
        return;
    }
    MEM_GROW(f->items, f->items_cap, f->node->n + 1);
    f->items[f->node->n++] = node;
}

static int add_node(struct reader *r, const yaml_event_t *e, struct err *err)
{
    struct frame *f = top(r);
    if (++r->nodes > YAML_MAX_NODES)
        return fail_at(r, e, err, "too many values");
    if (f && f->node->type == YAML_MAPPING && f->n_keys == f->node->n)
        return add_key(r, e, err);
    struct yaml_node *node;
    switch (e->type) {
    case YAML_SEQUENCE_START_EVENT:
        node = node_new(r, e, YAML_SEQUENCE);
        attach(r, node);
        return push(r, e, node, e->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE,
                    e->data.sequence_start.anchor, e->data.sequence_start.tag, "seq",
                    err);
    case YAML_MAPPING_START_EVENT:
        node = node_new(r, e, YAML_MAPPING);
        attach(r, node);
        return push(r, e, node, e->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE,
                    e->data.mapping_start.anchor, e->data.mapping_start.tag, "map", err);
    default:
        if (new_scalar(r, e, &node, err))
            return -1;
        attach(r, node);
        return 0;
    }
}

static void frame_fini(struct frame *f)
{
    free(f->items);
    free(f->keys);
    map_fini(&f->seen);
}

static void *move_to_arena(struct arena *a, const void *items, size_t n, size_t size)
{
    if (!n)
        return NULL;
    void *p = arena_alloc(a, n * size);
    memcpy(p, items, n * size);
    return p;
}

/* The last line of a collection. The end event of a block collection has the position of
 * the next token, so the last item counts. */
static unsigned last_line(const struct frame *f, const yaml_event_t *e)
{
    const struct yaml_node *node = f->node;
    if (node->flow)
        return (unsigned)e->end_mark.line + 1;
    return node->n ? f->items[node->n - 1]->last_line : node->line;
}

static void pop(struct reader *r, const yaml_event_t *e)
{
    struct frame *f = &r->frames[--r->depth];
    struct arena *a = &r->y->arena;
    f->node->last_line = last_line(f, e);
    f->node->items = move_to_arena(a, f->items, f->node->n, sizeof *f->items);
    f->node->keys = move_to_arena(a, f->keys, f->n_keys, sizeof *f->keys);
    frame_fini(f);
}

static void end_document(struct reader *r)
{
    struct yaml *y = r->y;
    MEM_GROW(y->documents, y->cap, y->n + 1);
    y->documents[y->n++] = yaml_is_null(r->root) ? NULL : r->root;
    r->root = NULL;
}

static int take_event(struct reader *r, const yaml_event_t *e, struct err *err)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT:
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return add_node(r, e, err);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        pop(r, e);
        return 0;
    case YAML_DOCUMENT_END_EVENT:
        end_document(r);
        return 0;
    case YAML_ALIAS_EVENT:
        return fail_at(r, e, err, "aliases are not allowed");
    default:
        return 0;
    }
}

static int syntax_error(const struct reader *r, const yaml_parser_t *p, struct err *err)
{
    const char *why = p->problem ? p->problem : "not YAML";
    if (p->error == YAML_MEMORY_ERROR)
        abort();
    if (p->error == YAML_READER_ERROR)
        return err_set(err, ERR_INVALID, "%s: byte %zu: %s", r->y->name,
                       p->problem_offset, why);
    return err_set(err, ERR_INVALID, "%s:%zu: %s%s%s", r->y->name,
                   p->problem_mark.line + 1, p->context ? p->context : "",
                   p->context ? ": " : "", why);
}

static int read_events(struct reader *r, yaml_parser_t *p, struct err *err)
{
    for (;;) {
        yaml_event_t e;
        if (!yaml_parser_parse(p, &e))
            return syntax_error(r, p, err);
        bool last = e.type == YAML_STREAM_END_EVENT;
        int rc = take_event(r, &e, err);
        yaml_event_delete(&e);
        if (rc || last)
            return rc;
    }
}

struct yaml *yaml_parse(const char *name, const char *p, size_t n, struct err *err)
{
    if (n > YAML_MAX_BYTES) {
        err_set(err, ERR_TOO_LARGE, "%s: larger than %d bytes", name, YAML_MAX_BYTES);
        return NULL;
    }
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        abort();
    yaml_parser_set_input_string(&parser, (const unsigned char *)(n ? p : ""), n);
    cleanup_yaml struct yaml *y = xcalloc(1, sizeof *y);
    y->name = xstrdup(name);
    struct reader *r = xcalloc(1, sizeof *r);
    r->y = y;
    r->seed = rng_entropy();
    int rc = read_events(r, &parser, err);
    while (r->depth)
        frame_fini(&r->frames[--r->depth]);
    free(r);
    yaml_parser_delete(&parser);
    return rc ? NULL : steal(&y);
}

struct yaml *yaml_load(const char *path, struct err *err)
{
    cleanup_buf_wipe struct buf bytes = {0};
    if (file_read(path, YAML_MAX_BYTES, &bytes, err))
        return NULL;
    return yaml_parse(path, bytes.p, bytes.n, err);
}

void yaml_close(struct yaml *y)
{
    if (!y)
        return;
    arena_wipe(&y->arena); /* a kubeconfig has keys and tokens */
    free(y->documents);
    free(y->name);
    free(y);
}

void yaml_cleanup(struct yaml **y)
{
    yaml_close(*y);
    *y = NULL;
}

/* -- Read by key -- */

size_t yaml_count(const struct yaml *y)
{
    return y->n;
}

const struct yaml_node *yaml_document(const struct yaml *y, size_t i)
{
    return i < y->n ? y->documents[i] : NULL;
}

const struct yaml_node *yaml_get(const struct yaml_node *node, const char *key)
{
    if (!node || node->type != YAML_MAPPING)
        return NULL;
    for (size_t i = 0; i < node->n; i++)
        if (span_eq(node->keys[i], span_of(key)))
            return node->items[i];
    return NULL;
}

bool yaml_is_null(const struct yaml_node *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (!node)
        return true;
    if (node->type != YAML_SCALAR || !node->plain)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (span_eq(node->text, span_of(words[i])))
            return true;
    return false;
}

int yaml_text(const struct yaml_node *node, const char *key, struct span *out,
              struct err *err)
{
    *out = (struct span){NULL, 0};
    if (!yaml_is_null(node) && node->type != YAML_MAPPING)
        return err_set(err, ERR_INVALID, "%s:%u: expected a mapping with key \"%s\"",
                       node->file, node->line, key);
    const struct yaml_node *value = yaml_get(node, key);
    if (yaml_is_null(value))
        return 0;
    if (value->type != YAML_SCALAR)
        return err_set(err, ERR_INVALID, "%s:%u: \"%s\": expected a scalar", value->file,
                       value->line, key);
    *out = value->text;
    return 0;
}

int yaml_string(const struct yaml_node *node, const char *key, char **out,
                struct err *err)
{
    struct span text;
    if (yaml_text(node, key, &text, err))
        return -1;
    if (text.n && memchr(text.p, '\0', text.n)) {
        const struct yaml_node *value = yaml_get(node, key);
        return err_set(err, ERR_INVALID, "%s:%u: \"%s\" contains a NUL", value->file,
                       value->line, key);
    }
    *out = text.p ? xmemdup0(text.p, text.n) : NULL;
    return 0;
}

static int read_value(const struct yaml_node *value, struct span key, opt_pair_fn pair,
                      void *ctx, struct err *err)
{
    if (yaml_is_null(value))
        return 0;
    if (value->type != YAML_SCALAR)
        return err_set(err, ERR_INVALID,
                       "%s:%u: \"%.*s\": expected a value or a list of values",
                       value->file, value->line, SPAN_ARG(key));
    if (memchr(key.p, '\0', key.n) || memchr(value->text.p, '\0', value->text.n))
        return err_set(err, ERR_INVALID, "%s:%u: key or value contains a NUL",
                       value->file, value->line);
    /* Both are NUL-terminated by arena_copy. */
    return pair(ctx, key.p, value->text.p, value->line, err);
}

static int read_entry(const struct yaml_node *value, struct span key, opt_pair_fn pair,
                      void *ctx, struct err *err)
{
    if (value->type != YAML_SEQUENCE)
        return read_value(value, key, pair, ctx, err);
    for (size_t i = 0; i < value->n; i++)
        if (read_value(value->items[i], key, pair, ctx, err))
            return -1;
    return 0;
}

int yaml_read_options(const char *path, opt_pair_fn pair, void *ctx, struct err *err)
{
    cleanup_yaml struct yaml *y = yaml_load(path, err);
    if (!y)
        return -1;
    if (yaml_count(y) > 1)
        return err_set(err, ERR_INVALID, "%s: expected one YAML document", path);
    const struct yaml_node *root = yaml_document(y, 0);
    if (!root)
        return 0;
    if (root->type != YAML_MAPPING)
        return err_set(err, ERR_INVALID, "%s:%u: expected `name: value`", path,
                       root->line);
    for (size_t i = 0; i < root->n; i++)
        if (read_entry(root->items[i], root->keys[i], pair, ctx, err))
            return -1;
    return 0;
}

/* -- Convert to JSON -- */

/*
 * Converts a tree to JSON. The type of a plain scalar follows from its form, as in
 * sigs.k8s.io/yaml. yaml_parse has bounded the depth of the recursion.
 */

static size_t digits(struct span s, size_t at)
{
    size_t n = 0;
    while (at + n < s.n && s.p[at + n] >= '0' && s.p[at + n] <= '9')
        n++;
    return n;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

/* Parses s, without sign and prefix, in base 8 or 16. */
static bool based(struct span s, unsigned base, uint64_t *v)
{
    *v = 0;
    for (size_t i = 0; i < s.n; i++) {
        int d = digit_value(s.p[i]);
        if (d >= (int)base || *v > (INT64_MAX - 15) / 16)
            return false;
        *v = *v * base + (unsigned)d;
    }
    return s.n > 0;
}

static bool add_based(struct buf *out, bool negative, struct span s)
{
    unsigned base = 8;
    size_t prefix = 1;
    uint64_t v;
    if (s.n < 2 || s.p[0] != '0')
        return false;
    if (s.p[1] == 'x' || s.p[1] == 'o') {
        base = s.p[1] == 'x' ? 16 : 8;
        prefix = 2;
    }
    if (!based((struct span){s.p + prefix, s.n - prefix}, base, &v))
        return false;
    buf_add_i64(out, negative ? -(int64_t)v : (int64_t)v);
    return true;
}

/* Decimal, with an optional fraction and exponent. JSON requires a digit on both sides of
 * the point, YAML does not. */
static bool add_decimal(struct buf *out, bool negative, struct span s)
{
    size_t whole = digits(s, 0), at = whole, fraction = 0;
    if (at < s.n && s.p[at] == '.') {
        fraction = digits(s, at + 1);
        at += 1 + fraction;
    }
    if (!whole && !fraction)
        return false;
    if (whole > 1 && s.p[0] == '0')
        return false;
    size_t exponent = at;
    if (at < s.n && (s.p[at] == 'e' || s.p[at] == 'E')) {
        at++;
        if (at < s.n && (s.p[at] == '+' || s.p[at] == '-'))
            at++;
        size_t n = digits(s, at);
        if (!n)
            return false;
        at += n;
    }
    if (at != s.n)
        return false;
    if (negative)
        buf_addc(out, '-');
    buf_add_span(out, whole ? (struct span){s.p, whole} : SPAN("0"));
    if (fraction)
        buf_add(out, s.p + whole, fraction + 1);
    buf_add(out, s.p + exponent, s.n - exponent);
    return true;
}

static bool add_number(struct buf *out, struct span s)
{
    bool negative = s.n && s.p[0] == '-';
    if (negative || (s.n && s.p[0] == '+')) {
        s.p++;
        s.n--;
    }
    return add_decimal(out, negative, s) || add_based(out, negative, s);
}

static bool add_bool(struct buf *out, struct span s)
{
    static const char *const words[][2] = {
        {"true", "false"}, {"True", "False"}, {"TRUE", "FALSE"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        for (int no = 0; no < 2; no++) {
            if (span_eq(s, span_of(words[i][no]))) {
                buf_adds(out, words[0][no]);
                return true;
            }
        }
    }
    return false;
}

static void add_scalar(struct buf *out, const struct yaml_node *node)
{
    if (node->plain && (add_bool(out, node->text) || add_number(out, node->text)))
        return;
    buf_add_json(out, node->text);
}

void yaml_json(const struct yaml_node *node, struct buf *out)
{
    if (yaml_is_null(node)) {
        buf_adds(out, "null");
        return;
    }
    if (node->type == YAML_SCALAR) {
        add_scalar(out, node);
        return;
    }
    bool mapping = node->type == YAML_MAPPING;
    buf_addc(out, mapping ? '{' : '[');
    for (size_t i = 0; i < node->n; i++) {
        if (i)
            buf_addc(out, ',');
        if (mapping) {
            buf_add_json(out, node->keys[i]);
            buf_addc(out, ':');
        }
        yaml_json(node->items[i], out);
    }
    buf_addc(out, mapping ? '}' : ']');
}
