/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/yaml.h"

#include <stdlib.h>
#include <yaml.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "wire/yaml_priv.h"

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
