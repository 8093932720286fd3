/* SPDX-License-Identifier: Apache-2.0 */

/* Edits of YAML files that keep every other byte: see edit.h. */

#include "setup/edit.h"

#include <stdlib.h>

#include "base/mem.h"
#include "wire/yaml.h"

json_t *edit_parse(const char *name, struct span text, struct yaml **yaml,
                   struct err *err)
{
    cleanup_yaml struct yaml *y = yaml_parse(name, text.p ? text.p : "", text.n, err);
    cleanup_buf struct buf json = {0};
    json_error_t bad;
    if (!y)
        return NULL;
    if (yaml_count(y) != 1 || !yaml_document(y, 0)) {
        err_set(err, ERR_INVALID, "%s: not a single document", name);
        return NULL;
    }
    yaml_json(yaml_document(y, 0), &json);
    json_t *j = json_loadb(json.p, json.n, JSON_DECODE_ANY, &bad);
    if (!j)
        err_set(err, ERR_INVALID, "%s: %s", name, bad.text);
    else if (yaml)
        *yaml = steal(&y);
    return j;
}

const json_t *edit_value(const json_t *j, const char *path)
{
    struct span rest = span_of(path);
    while (j && rest.n) {
        struct span part = span_cut(&rest, '.');
        int64_t i;
        if (json_is_array(j))
            j = span_i64(part, &i) && i >= 0 ? json_array_get(j, (size_t)i) : NULL;
        else
            j = json_object_getn(j, part.p, part.n);
    }
    return j;
}

const char *edit_string(const json_t *j, const char *path)
{
    const char *s = json_string_value(edit_value(j, path));
    return s ? s : "";
}

/* A text, its YAML nodes with their positions, and its values. */
struct doc {
    const char *name;
    struct span text;
    struct yaml *yaml;
    json_t *json;
};

static void doc_fini(struct doc *d)
{
    yaml_close(d->yaml);
    json_decref(d->json);
}
#define cleanup_doc __attribute__((cleanup(doc_fini)))

static int doc_read(const char *name, struct span text, struct doc *d, struct err *err)
{
    *d = (struct doc){.name = name, .text = text};
    /* Positions are by LF; other line breaks of YAML would shift them. */
    if (memchr(text.p ? text.p : "", '\r', text.n))
        return err_set(err, ERR_INVALID, "%s: lines end in CRLF", name);
    d->json = edit_parse(name, text, &d->yaml, err);
    return d->json ? 0 : -1;
}

static const struct yaml_node *doc_node(const struct doc *d, const char *path)
{
    const struct yaml_node *node = yaml_document(d->yaml, 0);
    struct span rest = span_of(path);
    while (node && rest.n) {
        struct span part = span_cut(&rest, '.');
        int64_t i;
        cleanup_free char *key = xmemdup0(part.p, part.n);
        if (node->type != YAML_SEQUENCE)
            node = yaml_get(node, key);
        else
            node = span_i64(part, &i) && i >= 0 && (size_t)i < node->n ? node->items[i]
                                                                       : NULL;
    }
    return node;
}

/* The value at a path, to be changed: jansson's getters return what may be modified. */
static json_t *doc_value(const struct doc *d, const char *path)
{
    return (json_t *)(uintptr_t)edit_value(d->json, path);
}

/* The offset of a line, counted from 1; the length of the text if there is no such line. */
static size_t doc_line(const struct doc *d, unsigned line)
{
    size_t at = 0;
    while (--line && at < d->text.n) {
        const char *end = memchr(d->text.p + at, '\n', d->text.n - at);
        at = end ? (size_t)(end - d->text.p) + 1 : d->text.n;
    }
    return at;
}

static int refuse(const struct doc *d, struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "%s: the YAML is written in a form that cannot be edited safely. Edit "
                   "it by hand: policy/README.md",
                   d->name);
}

/* Replaces the bytes from `at` to `end`. d->json has the change already: if the new text
 * has other values, the text stays. */
static int doc_splice(const struct doc *d, struct buf *text, size_t at, size_t end,
                      const char *now, struct err *err)
{
    cleanup_doc struct doc after = {0};
    cleanup_buf struct buf out = {0};
    buf_add(&out, text->p, at);
    buf_adds(&out, now);
    buf_add(&out, text->p + end, text->n - end);
    if (doc_read(d->name, buf_span(&out), &after, NULL) ||
        !json_equal(after.json, d->json))
        return refuse(d, err);
    const struct buf old = *text;
    *text = out;
    out = old;
    return 0;
}

/* Inserts lines after those of the node, indented like it. */
static int insert_after(const struct doc *d, struct buf *text,
                        const struct yaml_node *node, const char *lines, struct err *err)
{
    cleanup_buf struct buf out = {0};
    struct span rest = span_of(lines);
    size_t at = doc_line(d, node->last_line + 1);
    if (at && text->p[at - 1] != '\n')
        buf_addc(&out, '\n');
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        buf_printf(&out, "%*s%.*s\n", line.n ? (int)node->column - 1 : 0, "",
                   SPAN_ARG(line));
    }
    return doc_splice(d, text, at, at, out.p ? out.p : "", err);
}

/* Appends a key to the mapping at `path`; `entry` has its lines at the left margin. */
static int add_key(const struct doc *d, struct buf *text, const char *path,
                   const char *entry, struct err *err)
{
    cleanup_doc struct doc more = {0};
    const struct yaml_node *map = doc_node(d, path);
    if (doc_read("entry", span_of(entry), &more, err))
        return -1;
    if (!map || map->type != YAML_MAPPING || map->flow || !map->n)
        return refuse(d, err);
    json_object_update_missing(doc_value(d, path), more.json);
    return insert_after(d, text, map, entry, err);
}

int edit_add_key(const char *name, struct buf *text, const char *path, const char *entry,
                 struct err *err)
{
    cleanup_doc struct doc d = {0};
    return doc_read(name, buf_span(text), &d, err) ? -1
                                                   : add_key(&d, text, path, entry, err);
}

/* A list in block style, which begins on a line of its own. */
static bool is_block_list(const struct doc *d, const struct yaml_node *list)
{
    if (!list || list->type != YAML_SEQUENCE || list->flow || !list->n)
        return false;
    size_t at = doc_line(d, list->line), n = 0;
    while (at + n < d->text.n && d->text.p[at + n] == ' ')
        n++;
    return n >= list->column - 1;
}

int edit_add_item(const char *name, struct buf *text, const char *parent, const char *key,
                  const char *item, struct err *err)
{
    cleanup_doc struct doc d = {0}, more = {0};
    cleanup_free char *path = xasprintf("%s%s%s", parent, *parent ? "." : "", key);
    cleanup_free char *entry = xasprintf("%s:\n%s", key, item);
    if (doc_read(name, buf_span(text), &d, err))
        return -1;
    if (!edit_value(d.json, path))
        return add_key(&d, text, parent, entry, err);
    const struct yaml_node *list = doc_node(&d, path);
    if (!is_block_list(&d, list))
        return refuse(&d, err);
    if (doc_read("item", span_of(item), &more, err))
        return -1;
    json_array_append(doc_value(&d, path), json_array_get(more.json, 0));
    return insert_after(&d, text, list, item, err);
}

int edit_set(const char *name, struct buf *text, const char *parent, const char *key,
             const char *value, struct err *err)
{
    cleanup_doc struct doc d = {0};
    cleanup_free char *line = xasprintf("%s: %s\n", key, value);
    if (doc_read(name, buf_span(text), &d, err))
        return -1;
    json_t *in = doc_value(&d, parent), *old = json_object_get(in, key);
    if (!old)
        return add_key(&d, text, parent, line, err);
    json_t *now =
        json_is_boolean(old) ? json_boolean(!strcmp(value, "true")) : json_string(value);
    bool same = json_equal(old, now);
    const struct yaml_node *node = yaml_get(doc_node(&d, parent), key);
    size_t at = doc_line(&d, node->line) + node->column - 1;
    at += !node->plain; /* its quote */
    if (json_object_set_new(in, key, now) || node->type != YAML_SCALAR ||
        at + node->text.n > text->n ||
        !span_eq((struct span){text->p + at, node->text.n}, node->text))
        return refuse(&d, err);
    return same ? 0 : doc_splice(&d, text, at, at + node->text.n, value, err);
}

int edit_remove(const char *name, struct buf *text, const char *path, struct err *err)
{
    cleanup_doc struct doc d = {0};
    cleanup_free char *in = xstrdup(path);
    const struct yaml_node *node;
    json_t *from;
    char *dot;
    if (doc_read(name, buf_span(text), &d, err))
        return -1;
    do {
        node = doc_node(&d, in);
        dot = strrchr(in, '.');
        if (dot)
            *dot = '\0';
        from = doc_value(&d, dot ? in : "");
    } while (dot && json_object_size(from) + json_array_size(from) == 1);
    const char *key = dot ? dot + 1 : in;
    bool list = json_is_array(from);
    if (!node || (list ? json_array_remove(from, strtoul(key, NULL, 10))
                       : json_object_del(from, key)))
        return refuse(&d, err);
    /* The key of a mapping or list in block style stands on the line before it. */
    bool block = !list && node->type != YAML_SCALAR && !node->flow && node->line > 1;
    return doc_splice(&d, text, doc_line(&d, node->line - block),
                      doc_line(&d, node->last_line + 1), "", err);
}
