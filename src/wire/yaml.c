/* SPDX-License-Identifier: Apache-2.0 */

/*
 * YAML files: parsed to a tree, read by key, converted to JSON.
 */

#include <errno.h>
#include <math.h>
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

/* Builds a tree from libyaml's events, by recursive descent. */
struct reader {
    struct yaml *y;
    yaml_parser_t parser;
    size_t nodes;
    uint64_t seed;
};

#define cleanup_event __attribute__((cleanup(yaml_event_delete)))

static int fail_at(const struct reader *r, const yaml_event_t *e, struct err *err,
                   const char *why)
{
    return err_set(err, ERR_INVALID, "%s:%zu: %s", r->y->name, e->start_mark.line + 1,
                   why);
}

static int next_event(struct reader *r, yaml_event_t *e, struct err *err)
{
    const yaml_parser_t *p = &r->parser;
    if (yaml_parser_parse(&r->parser, e))
        return 0;
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

/* The node that the event begins; items are read by read_items. */
static int node_new(struct reader *r, const yaml_event_t *e, struct yaml_node **out,
                    struct err *err)
{
    static const char *const typed[] = {"null", "bool", "int", "float", NULL};
    const yaml_char_t *anchor, *tag;
    const char *own_tag;
    struct yaml_node *node = *out = arena_zalloc(&r->y->arena, sizeof *node);
    node->line = (unsigned)e->start_mark.line + 1;
    node->column = (unsigned)e->start_mark.column + 1;
    node->last_line = (unsigned)e->end_mark.line + 1;
    node->file = r->y->name;
    if (e->type == YAML_SCALAR_EVENT) {
        node->type = YAML_SCALAR;
        own_tag = "str";
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
        node->text =
            arena_copy(&r->y->arena, (struct span){(const char *)e->data.scalar.value,
                                                   e->data.scalar.length});
        node->plain = tag ? one_of(core_tag(tag), typed)
                          : e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        if (!e->end_mark.column && e->end_mark.line > e->start_mark.line)
            node->last_line--; /* the end mark of a block scalar is at the next line */
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        node->type = YAML_SEQUENCE;
        own_tag = "seq";
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
        node->flow = e->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        node->type = YAML_MAPPING;
        own_tag = "map";
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
        node->flow = e->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
    } else {
        return fail_at(r, e, err, "aliases are not allowed");
    }
    struct span core = core_tag(tag);
    if (++r->nodes > YAML_MAX_NODES)
        return fail_at(r, e, err, "too many values");
    if (anchor)
        return fail_at(r, e, err, "anchors are not allowed");
    if (core.n && !node->plain && !span_eq(core, span_of(own_tag)))
        return fail_at(r, e, err, "unsupported tag");
    return 0;
}

/* Checks the key against those before it, `seen`, and adds it to them. */
static int read_key(struct reader *r, const yaml_event_t *e, struct map *seen,
                    struct span *key, struct err *err)
{
    struct yaml_node *node;
    if (e->type != YAML_SCALAR_EVENT)
        return fail_at(r, e, err, "key: expected a scalar");
    if (node_new(r, e, &node, err))
        return -1;
    if (node->plain && !node->text.n)
        return fail_at(r, e, err, "empty key");
    if (node->plain && span_eq(node->text, SPAN("<<")))
        return fail_at(r, e, err, "merge keys are not allowed");
    if (map_get(seen, node->text))
        return err_set(err, ERR_INVALID, "%s:%u: duplicate key \"%.*s\"", r->y->name,
                       node->line, SPAN_ARG(node->text));
    map_set(seen, node);
    *key = node->text;
    return 0;
}

/* A collection while it is read; its end moves the items into the arena. */
struct items {
    struct yaml_node **nodes;
    struct span *keys;
    size_t nodes_cap, keys_cap;
    struct map seen; /* the nodes of the keys */
};

static void items_fini(struct items *i)
{
    free(i->nodes);
    free(i->keys);
    map_fini(&i->seen);
}

static void *move_to_arena(struct arena *a, const void *items, size_t n, size_t size)
{
    return n ? memcpy(arena_alloc(a, n * size), items, n * size) : NULL;
}

/* Reads the items of a sequence or mapping, and its end. `depth` is that of the node. */
static int read_items(struct reader *r, struct yaml_node *node, unsigned depth,
                      struct err *err)
{
    __attribute__((cleanup(items_fini))) struct items i = {0};
    struct arena *a = &r->y->arena;
    bool mapping = node->type == YAML_MAPPING;
    map_init(&i.seen, r->seed, offsetof(struct yaml_node, text));
    for (;; node->n++) {
        cleanup_event yaml_event_t e = {0}, value = {0};
        const yaml_event_t *start = &e;
        struct yaml_node *item;
        if (next_event(r, &e, err))
            return -1;
        if (e.type == YAML_SEQUENCE_END_EVENT || e.type == YAML_MAPPING_END_EVENT) {
            /* The end event of a block collection has the position of the next token. */
            if (node->flow)
                node->last_line = (unsigned)e.end_mark.line + 1;
            else
                node->last_line = node->n ? i.nodes[node->n - 1]->last_line : node->line;
            node->items = move_to_arena(a, i.nodes, node->n, sizeof *i.nodes);
            if (mapping)
                node->keys = move_to_arena(a, i.keys, node->n, sizeof *i.keys);
            return 0;
        }
        if (mapping) {
            MEM_GROW(i.keys, i.keys_cap, node->n + 1);
            if (read_key(r, &e, &i.seen, &i.keys[node->n], err) ||
                next_event(r, &value, err))
                return -1;
            start = &value;
        }
        MEM_GROW(i.nodes, i.nodes_cap, node->n + 1);
        if (node_new(r, start, &item, err))
            return -1;
        i.nodes[node->n] = item;
        if (item->type != YAML_SCALAR && depth == YAML_MAX_DEPTH)
            return fail_at(r, start, err, "nested too deeply");
        if (item->type != YAML_SCALAR && read_items(r, item, depth + 1, err))
            return -1;
    }
}

static int read_documents(struct reader *r, struct err *err)
{
    struct yaml *y = r->y;
    for (;;) {
        cleanup_event yaml_event_t e = {0};
        struct yaml_node *root;
        if (next_event(r, &e, err))
            return -1;
        if (e.type == YAML_STREAM_END_EVENT)
            return 0;
        if (e.type == YAML_STREAM_START_EVENT || e.type == YAML_DOCUMENT_START_EVENT ||
            e.type == YAML_DOCUMENT_END_EVENT)
            continue;
        if (node_new(r, &e, &root, err) ||
            (root->type != YAML_SCALAR && read_items(r, root, 1, err)))
            return -1;
        MEM_GROW(y->documents, y->cap, y->n + 1);
        y->documents[y->n++] = yaml_is_null(root) ? NULL : root;
    }
}

struct yaml *yaml_parse(const char *name, const char *p, size_t n, struct err *err)
{
    if (n > YAML_MAX_BYTES) {
        err_set(err, ERR_TOO_LARGE, "%s: larger than %d bytes", name, YAML_MAX_BYTES);
        return NULL;
    }
    cleanup_yaml struct yaml *y = xcalloc(1, sizeof *y);
    struct reader r = {.y = y, .seed = rng_entropy()};
    y->name = xstrdup(name);
    if (!yaml_parser_initialize(&r.parser))
        abort();
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)(n ? p : ""), n);
    int rc = read_documents(&r, err);
    yaml_parser_delete(&r.parser);
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
    static const char *const words[] = {"", "~", "null", "Null", "NULL", NULL};
    return !node ||
           (node->type == YAML_SCALAR && node->plain && one_of(node->text, words));
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
    if (memchr(value->text.p, '\0', value->text.n))
        return err_set(err, ERR_INVALID, "%s:%u: \"%s\" contains a NUL", value->file,
                       value->line, key);
    *out = value->text;
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

/* s is NUL-terminated by arena_copy. */
static bool add_number(struct buf *out, struct span s)
{
    static const char hex[] = "0123456789abcdefABCDEFxo+-.",
                      decimal[] = "0123456789eE+-.";
    bool is_octal = s.n > 2 && !strncmp(s.p, "0o", 2) && s.p[2] >= '0' && s.p[2] <= '7';
    char *end;
    if (!s.n || strspn(s.p, hex) != s.n)
        return false;
    errno = 0;
    long long whole = strtoll(s.p + (is_octal ? 2 : 0), &end, is_octal ? 8 : 0);
    if (end == s.p + s.n && !errno) {
        buf_add_i64(out, whole);
        return true;
    }
    double v = strtod(s.p, &end);
    if (strspn(s.p, decimal) != s.n || end != s.p + s.n || !isfinite(v))
        return false;
    buf_printf(out, "%.17g", v + 0.0); /* 0, not -0 */
    return true;
}

static void add_scalar(struct buf *out, const struct yaml_node *node)
{
    static const char *const yes[] = {"true", "True", "TRUE", NULL}, *const no[] = {
                                                                         "false", "False",
                                                                         "FALSE", NULL};
    if (node->plain && one_of(node->text, yes))
        buf_adds(out, "true");
    else if (node->plain && one_of(node->text, no))
        buf_adds(out, "false");
    else if (!node->plain || !add_number(out, node->text))
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
