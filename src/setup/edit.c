/* SPDX-License-Identifier: Apache-2.0 */

/* Edits of YAML files that keep every other byte: see edit.h. */

#include "setup/edit.h"

#include <stdlib.h>

#include "base/mem.h"
#include "wire/yaml.h"

void edit_close(struct edit *e)
{
    buf_fini(&e->text);
    yaml_close(e->yaml);
    json_decref(e->json);
}

int edit_open(const char *name, struct span text, struct edit *e, struct err *err)
{
    cleanup_buf struct buf json = {0};
    json_error_t bad;
    *e = (struct edit){.name = name};
    buf_add_span(&e->text, text);
    e->yaml = yaml_parse(name, text.p ? text.p : "", text.n, err);
    if (!e->yaml)
        return -1;
    if (yaml_count(e->yaml) != 1 || !yaml_document(e->yaml, 0))
        return err_set(err, ERR_INVALID, "%s: not a single document", name);
    yaml_json(yaml_document(e->yaml, 0), &json);
    e->json = json_loadb(json.p, json.n, JSON_DECODE_ANY, &bad);
    return e->json ? 0 : err_set(err, ERR_INVALID, "%s: %s", name, bad.text);
}

json_t *edit_parse(const char *name, struct span text, struct err *err)
{
    cleanup_edit struct edit e;
    return edit_open(name, text, &e, err) ? NULL : steal(&e.json);
}

static const struct yaml_node *node_at(const struct edit *e, const char *path)
{
    const struct yaml_node *node = yaml_document(e->yaml, 0);
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
static json_t *value_at(const struct edit *e, const char *path)
{
    return (json_t *)(uintptr_t)jpath(e->json, path);
}

/* The offset of a line, counted from 1; the length of the text if there is no such line. */
static size_t line_at(const struct edit *e, unsigned line)
{
    size_t at = 0;
    while (--line && at < e->text.n) {
        const char *end = memchr(e->text.p + at, '\n', e->text.n - at);
        at = end ? (size_t)(end - e->text.p) + 1 : e->text.n;
    }
    return at;
}

static int refuse(const struct edit *e, struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "%s: the YAML is written in a form that cannot be edited safely. Edit "
                   "it by hand: policy/README.md",
                   e->name);
}

/* Replaces the bytes from `at` to `end`. e->json has the change already: if the new text
 * has other values (of a list in brackets, a value with escapes), the text stays. */
static int splice(struct edit *e, size_t at, size_t end, const char *now, struct err *err)
{
    cleanup_edit struct edit after = {0};
    cleanup_buf struct buf out = {0};
    /* Positions are by LF; other line breaks of YAML would shift them. */
    if (memchr(e->text.p, '\r', e->text.n))
        return err_set(err, ERR_INVALID, "%s: lines end in CRLF", e->name);
    buf_add(&out, e->text.p, at);
    buf_adds(&out, now);
    buf_add(&out, e->text.p + end, e->text.n - end);
    if (edit_open(e->name, buf_span(&out), &after, NULL) ||
        !json_equal(after.json, e->json))
        return refuse(e, err);
    const struct edit old = *e;
    *e = after;
    after = old;
    return 0;
}

/* Inserts lines after those of the node, indented like it. */
static int insert_after(struct edit *e, const struct yaml_node *node, const char *lines,
                        struct err *err)
{
    cleanup_buf struct buf out = {0};
    struct span rest = span_of(lines);
    size_t at = line_at(e, node->last_line + 1);
    if (at && e->text.p[at - 1] != '\n')
        buf_addc(&out, '\n');
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        buf_printf(&out, "%*s%.*s\n", line.n ? (int)node->column - 1 : 0, "",
                   SPAN_ARG(line));
    }
    return splice(e, at, at, out.p ? out.p : "", err);
}

int edit_add_key(struct edit *e, const char *path, const char *entry, struct err *err)
{
    const struct yaml_node *map = node_at(e, path);
    json_auto_t *more = edit_parse("entry", span_of(entry), err);
    if (!map)
        return refuse(e, err);
    json_object_update_missing(value_at(e, path), more);
    return insert_after(e, map, entry, err);
}

int edit_add_item(struct edit *e, const char *parent, const char *key, const char *item,
                  struct err *err)
{
    cleanup_free char *path = xasprintf("%s%s%s", parent, *parent ? "." : "", key);
    cleanup_free char *entry = xasprintf("%s:\n%s", key, item);
    json_auto_t *more = edit_parse("item", span_of(item), err);
    json_t *list = value_at(e, path);
    if (!list)
        return edit_add_key(e, parent, entry, err);
    json_array_extend(list, more);
    return insert_after(e, node_at(e, path), item, err);
}

int edit_set(struct edit *e, const char *parent, const char *key, const char *value,
             struct err *err)
{
    cleanup_free char *line = xasprintf("%s: %s\n", key, value);
    json_t *in = value_at(e, parent), *old = json_object_get(in, key);
    if (!old)
        return edit_add_key(e, parent, line, err);
    json_t *now =
        json_is_boolean(old) ? json_boolean(!strcmp(value, "true")) : json_string(value);
    bool same = json_equal(old, now);
    const struct yaml_node *node = yaml_get(node_at(e, parent), key);
    size_t at = line_at(e, node->line) + node->column - 1;
    at += !node->plain; /* its quote */
    json_object_set_new(in, key, now);
    if (node->type != YAML_SCALAR || at + node->text.n > e->text.n)
        return refuse(e, err);
    return same ? 0 : splice(e, at, at + node->text.n, value, err);
}

int edit_remove(struct edit *e, const char *path, struct err *err)
{
    cleanup_free char *in = xstrdup(path);
    const struct yaml_node *node;
    json_t *from;
    char *dot;
    do {
        node = node_at(e, in);
        dot = strrchr(in, '.');
        if (dot)
            *dot = '\0';
        from = value_at(e, dot ? in : "");
    } while (dot && json_object_size(from) + json_array_size(from) == 1);
    const char *key = dot ? dot + 1 : in;
    bool list = json_is_array(from);
    if (!node)
        return refuse(e, err);
    if (list)
        json_array_remove(from, strtoul(key, NULL, 10));
    else
        json_object_del(from, key);
    /* The key of a mapping or list in block style stands on the line before it. */
    bool block = !list && node->type != YAML_SCALAR && !node->flow && node->line > 1;
    return splice(e, line_at(e, node->line - block), line_at(e, node->last_line + 1), "",
                  err);
}
