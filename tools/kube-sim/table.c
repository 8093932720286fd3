/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/table_priv.h"

#include "kube-sim/columns_priv.h"

bool sim_table_wanted(const char *accept)
{
    struct span rest = span_of(accept);
    struct span first = span_cut(&rest, ','); /* the client's first choice */
    struct span type = span_cut(&first, ';');
    bool table = false, v1 = false;
    while (first.n) {
        struct span part = span_trim(span_cut(&first, ';'));
        table |= span_eq(part, SPAN("as=Table"));
        v1 |= span_eq(part, SPAN("v=v1"));
    }
    return table && v1 && span_eq(span_trim(type), SPAN("application/json"));
}

struct table sim_table_of(const struct kind *kind, int64_t now_ms, struct span include)
{
    enum table_rows rows = span_eq(include, SPAN("Object")) ? TABLE_OBJECTS
                           : span_eq(include, SPAN("None")) ? TABLE_CELLS
                                                            : TABLE_METADATA;
    return (struct table){kind, now_ms, rows};
}

static void add_columns(const struct kind *kind, struct buf *out)
{
    static const char *const types[] = {"string", "integer", "date"};
    for (const struct column *c = kind->columns; c->name; c++) {
        if (c != kind->columns)
            buf_addc(out, ',');
        buf_printf(out,
                   "{\"name\":\"%s\",\"type\":\"%s\",\"format\":\"%s\","
                   "\"description\":\"\",\"priority\":%d}",
                   c->name, types[c->type], c == kind->columns ? "name" : "",
                   c->priority);
    }
}

void sim_table_begin(const struct table *t, bool with_columns, struct span metadata,
                     struct buf *out)
{
    buf_printf(out,
               "{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":%.*s,"
               "\"columnDefinitions\":%s",
               SPAN_ARG(metadata), with_columns ? "[" : "null");
    if (with_columns) {
        add_columns(t->kind, out);
        buf_addc(out, ']');
    }
    buf_adds(out, ",\"rows\":[");
}

static void add_cells(const struct table *t, const json_t *root, struct buf *out)
{
    cleanup_buf struct buf text = {0};
    for (const struct column *c = t->kind->columns; c->name; c++) {
        if (c != t->kind->columns)
            buf_addc(out, ',');
        buf_clear(&text);
        c->cell(root, t->now_ms, &text);
        if (c->type == COLUMN_NUMBER)
            buf_add_span(out, text.n ? buf_span(&text) : SPAN("0"));
        else
            buf_add_json(out, buf_span(&text));
    }
}

void sim_table_add_row(const struct table *t, const struct object *o, struct buf *out)
{
    cleanup_json json_t *root = sim_object_parse(o);
    buf_adds(out, "{\"cells\":[");
    add_cells(t, root, out);
    buf_addc(out, ']');
    if (t->rows == TABLE_METADATA) {
        buf_adds(out, ",\"object\":{\"kind\":\"PartialObjectMetadata\","
                      "\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":");
        sim_jsonx_dump(out, json_object_get(root, "metadata"));
        buf_addc(out, '}');
    } else if (t->rows == TABLE_OBJECTS) {
        buf_adds(out, ",\"object\":");
        buf_add_span(out, o->bytes);
    }
    buf_addc(out, '}');
}

void sim_table_add(const struct table *t, bool with_columns, const struct object *o,
                   struct buf *out)
{
    cleanup_buf struct buf meta = {0};
    buf_printf(&meta, "{\"resourceVersion\":\"%llu\"}", (unsigned long long)o->rv);
    sim_table_begin(t, with_columns, buf_span(&meta), out);
    sim_table_add_row(t, o, out);
    buf_adds(out, "]}");
}
