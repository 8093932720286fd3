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
    struct arena arena;         /* nodes and texts */
    struct yaml_node documents; /* a sequence */
};

/* Builds a tree from libyaml's events, by recursive descent. */
struct reader {
    struct yaml *y;
    yaml_parser_t parser;
    size_t nodes;
    uint64_t seed;
};

#define cleanup_event __attribute__((cleanup(yaml_event_delete)))
#define cleanup_map   __attribute__((cleanup(map_fini)))

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

/* Fills the node from the event that begins it; items are read by read_items. */
static int read_node(struct reader *r, const yaml_event_t *e, struct yaml_node *node,
                     struct err *err)
{
    const yaml_char_t *anchor, *tag;
    node->line = (unsigned)e->start_mark.line + 1;
    node->column = (unsigned)e->start_mark.column + 1;
    node->last_line = (unsigned)e->end_mark.line + 1;
    node->file = r->y->name;
    if (e->type == YAML_SCALAR_EVENT) {
        node->type = YAML_SCALAR;
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
        node->text =
            arena_copy(&r->y->arena, (struct span){(const char *)e->data.scalar.value,
                                                   e->data.scalar.length});
        node->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        if (!e->end_mark.column && e->end_mark.line > e->start_mark.line)
            node->last_line--; /* the end mark of a block scalar is at the next line */
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        node->type = YAML_SEQUENCE;
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
        node->flow = e->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        node->type = YAML_MAPPING;
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
        node->flow = e->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
    } else {
        return fail_at(r, e, err, "aliases are not allowed");
    }
    if (++r->nodes > YAML_MAX_NODES)
        return fail_at(r, e, err, "too many values");
    if (anchor)
        return fail_at(r, e, err, "anchors are not allowed");
    if (tag)
        return fail_at(r, e, err, "tags are not allowed");
    return 0;
}

/* Reads the item's key, and checks it against those before it, `seen`. */
static int read_key(struct reader *r, const yaml_event_t *e, struct map *seen,
                    struct yaml_node *item, struct err *err)
{
    struct yaml_node key = {0};
    if (e->type != YAML_SCALAR_EVENT)
        return fail_at(r, e, err, "key: expected a scalar");
    if (read_node(r, e, &key, err))
        return -1;
    if (key.plain && !key.text.n)
        return fail_at(r, e, err, "empty key");
    if (key.plain && span_eq(key.text, SPAN("<<")))
        return fail_at(r, e, err, "merge keys are not allowed");
    if (map_get(seen, key.text))
        return err_set(err, ERR_INVALID, "%s:%u: duplicate key \"%.*s\"", r->y->name,
                       key.line, SPAN_ARG(key.text));
    item->key = key.text;
    map_set(seen, item);
    return 0;
}

/* Reads the items of a sequence or mapping, or the documents, and their end. `depth` is that
 * of the node. */
static int read_items(struct reader *r, struct yaml_node *node, unsigned depth,
                      struct err *err)
{
    cleanup_map struct map seen;
    map_init(&seen, r->seed, offsetof(struct yaml_node, key));
    for (;;) {
        cleanup_event yaml_event_t e = {0}, key = {0};
        struct yaml_node *item;
        if (next_event(r, &e, err))
            return -1;
        switch (e.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            continue;
        case YAML_STREAM_END_EVENT:
            return 0;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
            /* The end event of a block collection has the position of the next token. */
            node->last_line = node->flow ? (unsigned)e.end_mark.line + 1
                              : node->n  ? node->items[node->n - 1]->last_line
                                         : node->line;
            return 0;
        default:
            break;
        }
        item = arena_zalloc(&r->y->arena, sizeof *item);
        if (node->type == YAML_MAPPING) {
            key = e;
            e = (yaml_event_t){0};
            if (read_key(r, &key, &seen, item, err) || next_event(r, &e, err))
                return -1;
        }
        if (read_node(r, &e, item, err))
            return -1;
        if (item->type != YAML_SCALAR && depth == YAML_MAX_DEPTH)
            return fail_at(r, &e, err, "nested too deeply");
        if (item->type != YAML_SCALAR && read_items(r, item, depth + 1, err))
            return -1;
        size_t n = node->n++;
        if ((n & (n - 1)) == 0) { /* full: the room is a power of two */
            struct yaml_node **more =
                arena_alloc(&r->y->arena, (n ? 2 * n : 1) * sizeof *more);
            if (n)
                memcpy(more, node->items, n * sizeof *more);
            node->items = more;
        }
        node->items[n] = item;
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
    y->documents.type = YAML_SEQUENCE;
    if (!yaml_parser_initialize(&r.parser))
        abort();
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)(n ? p : ""), n);
    int rc = read_items(&r, &y->documents, 0, err);
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
    return y->documents.n;
}

const struct yaml_node *yaml_document(const struct yaml *y, size_t i)
{
    const struct yaml_node *d = i < y->documents.n ? y->documents.items[i] : NULL;
    return yaml_is_null(d) ? NULL : d;
}

const struct yaml_node *yaml_get(const struct yaml_node *node, const char *key)
{
    if (!node || node->type != YAML_MAPPING)
        return NULL;
    for (size_t i = 0; i < node->n; i++)
        if (span_eq(node->items[i]->key, span_of(key)))
            return node->items[i];
    return NULL;
}

/* The JSON word that a plain scalar stands for; NULL: none. */
static const char *word_of(const struct yaml_node *node)
{
    static const char *const words[][2] = {
        {"", "null"},       {"~", "null"},      {"null", "null"},  {"Null", "null"},
        {"NULL", "null"},   {"true", "true"},   {"True", "true"},  {"TRUE", "true"},
        {"false", "false"}, {"False", "false"}, {"FALSE", "false"}};
    for (size_t i = 0; node->type == YAML_SCALAR && node->plain && i < ARRAY_LEN(words);
         i++)
        if (span_eq(node->text, span_of(words[i][0])))
            return words[i][1];
    return NULL;
}

bool yaml_is_null(const struct yaml_node *node)
{
    const char *word = node ? word_of(node) : "null";
    return word && *word == 'n';
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

int yaml_read_options(const char *path, opt_pair_fn pair, void *ctx, struct err *err)
{
    cleanup_yaml struct yaml *y = yaml_load(path, err);
    if (!y)
        return -1;
    if (yaml_count(y) > 1)
        return err_set(err, ERR_INVALID, "%s: expected one YAML document", path);
    const struct yaml_node *root = yaml_document(y, 0);
    if (root && root->type != YAML_MAPPING)
        return err_set(err, ERR_INVALID, "%s:%u: expected `name: value`", path,
                       root->line);
    for (size_t k = 0; root && k < root->n; k++) {
        const struct yaml_node *option = root->items[k];
        const bool is_list = option->type == YAML_SEQUENCE;
        const struct span key = option->key;
        for (size_t i = 0; i < (is_list ? option->n : 1); i++) {
            const struct yaml_node *value = is_list ? option->items[i] : option;
            if (yaml_is_null(value))
                continue;
            if (value->type != YAML_SCALAR)
                return err_set(err, ERR_INVALID,
                               "%s:%u: \"%.*s\": expected a value or a list of values",
                               value->file, value->line, SPAN_ARG(key));
            if (memchr(key.p, '\0', key.n) || memchr(value->text.p, '\0', value->text.n))
                return err_set(err, ERR_INVALID, "%s:%u: key or value contains a NUL",
                               value->file, value->line);
            /* Both are NUL-terminated by arena_copy. */
            if (pair(ctx, key.p, value->text.p, value->line, err))
                return -1;
        }
    }
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

void yaml_json(const struct yaml_node *node, struct buf *out)
{
    const char *word = node ? word_of(node) : "null";
    if (word) {
        buf_adds(out, word);
        return;
    }
    if (node->type == YAML_SCALAR) {
        if (!node->plain || !add_number(out, node->text))
            buf_add_json(out, node->text);
        return;
    }
    bool mapping = node->type == YAML_MAPPING;
    buf_addc(out, mapping ? '{' : '[');
    for (size_t i = 0; i < node->n; i++) {
        if (i)
            buf_addc(out, ',');
        if (mapping) {
            buf_add_json(out, node->items[i]->key);
            buf_addc(out, ':');
        }
        yaml_json(node->items[i], out);
    }
    buf_addc(out, mapping ? '}' : ']');
}
