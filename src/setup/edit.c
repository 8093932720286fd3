/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/edit.h"

#include <jansson.h>

#include "base/mem.h"
#include "wire/yaml.h"

/* A text, its YAML nodes with their positions, and its values. */
struct doc {
    const char *name;
    struct span text;
    struct yaml *yaml;
    json_t *json;
};

static int doc_read(const char *name, struct span text, struct doc *d, struct err *err)
{
    cleanup_buf struct buf json = {0};
    json_error_t bad;
    *d = (struct doc){.name = name, .text = text};
    /* Positions are by LF; other line breaks of YAML would shift them. */
    if (memchr(text.p ? text.p : "", '\r', text.n))
        return err_set(err, ERR_INVALID, "%s: lines end in CRLF", name);
    d->yaml = yaml_parse(name, text.p ? text.p : "", text.n, err);
    if (!d->yaml)
        return -1;
    if (yaml_count(d->yaml) != 1)
        return err_set(err, ERR_INVALID, "%s: not a single document", name);
    yaml_json(yaml_document(d->yaml, 0), &json);
    d->json = json_loadb(json.p, json.n, JSON_DECODE_ANY, &bad);
    if (!d->json)
        return err_set(err, ERR_INVALID, "%s: %s", name, bad.text);
    return 0;
}

static void doc_fini(struct doc *d)
{
    yaml_close(d->yaml);
    json_decref(d->json);
}
#define cleanup_doc __attribute__((cleanup(doc_fini)))

static const struct yaml_node *node_at(const struct doc *d, const char *path)
{
    const struct yaml_node *node = yaml_document(d->yaml, 0);
    struct span rest = span_of(path);
    while (node && rest.n) {
        struct span part = span_cut(&rest, '.');
        int64_t i;
        cleanup_free char *key = xmemdup0(part.p, part.n);
        if (node->type != YAML_SEQUENCE)
            node = yaml_get(node, key);
        else if (span_i64(part, &i) && i >= 0 && (size_t)i < node->n)
            node = node->items[i];
        else
            node = NULL;
    }
    return node;
}

static json_t *json_at(json_t *j, struct span rest)
{
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

static const struct yaml_node *wanted(const struct doc *d, const char *path,
                                      enum yaml_type type, struct err *err)
{
    static const char *const names[] = {"single value", "list", "mapping"};
    const struct yaml_node *node = node_at(d, path);
    if (node && node->type == type)
        return node;
    err_set(err, ERR_INVALID, "%s: %s is not a %s", d->name,
            *path ? path : "the document", names[type]);
    return NULL;
}

/* The offset of a line, counted from 1; the length of the text if there is no such line.
 */
static size_t offset_of(struct span text, unsigned line)
{
    size_t at = 0;
    while (--line && at < text.n) {
        const char *end = memchr(text.p + at, '\n', text.n - at);
        at = end ? (size_t)(end - text.p) + 1 : text.n;
    }
    return at;
}

/* Are there only spaces before the column, counted from 1? */
static bool is_indent(const struct doc *d, unsigned line, unsigned column)
{
    size_t at = offset_of(d->text, line);
    for (unsigned i = 0; i + 1 < column; i++)
        if (at + i >= d->text.n || d->text.p[at + i] != ' ')
            return false;
    return true;
}

static void add_indented(struct buf *out, const char *lines, unsigned indent)
{
    struct span rest = span_of(lines);
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        if (line.n)
            buf_printf(out, "%*s", (int)indent, "");
        buf_add_span(out, line);
        buf_addc(out, '\n');
    }
}

/* The text with lines inserted after those of the node. */
static void insert_after(const struct doc *d, const struct yaml_node *node,
                         const char *lines, struct buf *out)
{
    size_t at = offset_of(d->text, node->last_line + 1);
    buf_add(out, d->text.p, at);
    if (at && d->text.p[at - 1] != '\n')
        buf_addc(out, '\n');
    add_indented(out, lines, node->column - 1);
    buf_add(out, d->text.p + at, d->text.n - at);
}

static int unsafe(const struct doc *d, struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "%s: the YAML is written in a form that cannot be edited safely",
                   d->name);
}

/* Has the new text the values of d->json, to which the change has been applied? */
static int verify(const struct doc *d, struct buf *out, size_t start, struct err *err)
{
    cleanup_doc struct doc after = {0};
    struct span text = {out->p + start, out->n - start};
    if (doc_read(d->name, text, &after, NULL) == 0 && json_equal(after.json, d->json))
        return 0;
    out->n = start;
    out->p[start] = '\0';
    return unsafe(d, err);
}

int edit_append(const char *name, struct span text, const char *path, const char *item,
                struct buf *out, struct err *err)
{
    cleanup_doc struct doc d = {0}, more = {0};
    size_t start = out->n;
    if (doc_read(name, text, &d, err) || doc_read("item", span_of(item), &more, err))
        return -1;
    const struct yaml_node *list = wanted(&d, path, YAML_SEQUENCE, err);
    if (!list)
        return -1;
    if (list->flow || !list->n || !is_indent(&d, list->line, list->column))
        return unsafe(&d, err);
    insert_after(&d, list, item, out);
    json_array_append(json_at(d.json, span_of(path)), json_array_get(more.json, 0));
    return verify(&d, out, start, err);
}

int edit_add_key(const char *name, struct span text, const char *path, const char *entry,
                 struct buf *out, struct err *err)
{
    cleanup_doc struct doc d = {0}, more = {0};
    size_t start = out->n;
    if (doc_read(name, text, &d, err) || doc_read("entry", span_of(entry), &more, err))
        return -1;
    const struct yaml_node *map = wanted(&d, path, YAML_MAPPING, err);
    if (!map)
        return -1;
    if (map->flow || !map->n)
        return unsafe(&d, err);
    insert_after(&d, map, entry, out);
    json_object_update_missing(json_at(d.json, span_of(path)), more.json);
    return verify(&d, out, start, err);
}

int edit_set(const char *name, struct span text, const char *path, const char *value,
             struct buf *out, struct err *err)
{
    cleanup_doc struct doc d = {0};
    size_t start = out->n;
    if (doc_read(name, text, &d, err))
        return -1;
    const struct yaml_node *node = wanted(&d, path, YAML_SCALAR, err);
    if (!node)
        return -1;
    size_t at = offset_of(text, node->line) + node->column - 1;
    at += !node->plain; /* its quote */
    if (at + node->text.n > text.n ||
        !span_eq((struct span){text.p + at, node->text.n}, node->text))
        return unsafe(&d, err);
    buf_add(out, text.p, at);
    buf_adds(out, value);
    buf_add(out, text.p + at + node->text.n, text.n - at - node->text.n);
    const char *dot = strrchr(path, '.');
    json_t *parent = json_at(d.json, (struct span){path, dot ? (size_t)(dot - path) : 0});
    if (!json_is_object(parent))
        return unsafe(&d, err);
    const char *key = dot ? dot + 1 : path;
    json_object_set_new(parent, key,
                        json_is_boolean(json_object_get(parent, key))
                            ? json_boolean(!strcmp(value, "true"))
                            : json_string(value));
    return verify(&d, out, start, err);
}

/* The line of `key`, whose value begins on this line or below; 0: not found. */
static unsigned line_of_key(const struct doc *d, const char *key, unsigned line)
{
    cleanup_free char *plain = xasprintf("%s:", key);
    cleanup_free char *quoted = xasprintf("\"%s\":", key);
    for (; line; line--) {
        struct span rest = {d->text.p + offset_of(d->text, line), 0};
        rest.n = d->text.n - (size_t)(rest.p - d->text.p);
        struct span at = span_trim(span_cut(&rest, '\n'));
        if (span_starts(at, span_of(plain)) || span_starts(at, span_of(quoted)))
            return line;
    }
    return 0;
}

int edit_remove(const char *name, struct span text, const char *path, struct buf *out,
                struct err *err)
{
    cleanup_doc struct doc d = {0};
    size_t start = out->n;
    if (doc_read(name, text, &d, err))
        return -1;
    const struct yaml_node *node = node_at(&d, path);
    const char *dot = strrchr(path, '.');
    const char *key = dot ? dot + 1 : path;
    json_t *parent = json_at(d.json, (struct span){path, dot ? (size_t)(dot - path) : 0});
    unsigned line = node ? line_of_key(&d, key, node->line) : 0;
    if (!line || !json_is_object(parent))
        return unsafe(&d, err);
    size_t at = offset_of(text, line), end = offset_of(text, node->last_line + 1);
    buf_add(out, text.p, at);
    buf_add(out, text.p + end, text.n - end);
    json_object_del(parent, key);
    return verify(&d, out, start, err);
}

int edit_lines(const char *name, struct span text, const char *path, struct buf *out,
               struct err *err)
{
    cleanup_doc struct doc d = {0};
    if (doc_read(name, text, &d, err))
        return -1;
    const struct yaml_node *list = wanted(&d, path, YAML_SEQUENCE, err);
    if (!list)
        return -1;
    if (list->flow || !is_indent(&d, list->line, list->column))
        return unsafe(&d, err);
    for (unsigned line = list->line; line <= list->last_line; line++) {
        size_t at = offset_of(text, line), end = offset_of(text, line + 1);
        size_t indent = list->column - 1;
        while (indent && at < end && text.p[at] == ' ') {
            at++;
            indent--;
        }
        buf_add(out, text.p + at, end - at);
    }
    return 0;
}
