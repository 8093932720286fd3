/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rightsize.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"

enum { HOURS_OF_A_DAY = 24 };

struct row {
    json_t *item; /* holds the strings */
    const char *ns, *kind, *name, *container;
    int64_t promised_mib, p95_mib, max_mib, hours, age_hours;
    int64_t nodes;
};

struct rightsize {
    struct row *rows;
    size_t n, cap;
};

struct rightsize *rightsize_new(void)
{
    return xcalloc(1, sizeof(struct rightsize));
}

void rightsize_free(struct rightsize *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        json_decref(r->rows[i].item);
    free(r->rows);
    free(r);
}

/* -- reading -- */

/* The number; -1: absent or impossible. */
static int64_t number_of(const json_t *item, const char *key)
{
    const json_t *v = json_object_get(item, key);
    int64_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    return n >= 0 && n <= (int64_t)1 << 40 ? n : -1;
}

static const char *text_of(const json_t *item, const char *key)
{
    const char *s = json_string_value(json_object_get(item, key));
    return s && *s ? s : NULL;
}

static void add_row(struct rightsize *r, json_t *item, struct span ns)
{
    struct row row = {
        .item = item,
        .ns = text_of(item, "namespace"),
        .kind = text_of(item, "kind"),
        .name = text_of(item, "name"),
        .container = text_of(item, "container"),
        .promised_mib = number_of(item, "promisedMemory"),
        .p95_mib = number_of(item, "p95Memory"),
        .max_mib = number_of(item, "maxMemory"),
        .hours = number_of(item, "hours"),
        .age_hours = number_of(item, "ageHours"),
        .nodes = 1,
    };
    if (!row.ns || !row.kind || !row.name || !row.container || row.p95_mib < 0 ||
        row.max_mib < 0 || row.hours < 0 || row.age_hours < 0 || r->n == RIGHTSIZE_MAX ||
        (ns.n && !span_eq(ns, span_of(row.ns))))
        return;
    MEM_GROW(r->rows, r->cap, r->n + 1);
    json_incref(item);
    r->rows[r->n++] = row;
}

void rightsize_add(struct rightsize *r, const json_t *scvs, struct span ns)
{
    size_t i, k;
    json_t *scv, *item;
    json_array_foreach(scvs, i, scv)
    {
        const json_t *status = json_object_get(scv, "status");
        json_array_foreach(json_object_get(status, "workloadList"), k, item)
            add_row(r, item, ns);
    }
}

/* -- writing -- */

static int by_name(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = strcmp(x->ns, y->ns);
    if (!order)
        order = strcmp(x->kind, y->kind);
    if (!order)
        order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->container, y->container);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Sorts the rows, and joins those of several nodes. */
static void join(struct rightsize *r)
{
    size_t n = 0;
    if (r->n)
        qsort(r->rows, r->n, sizeof *r->rows, by_name);
    for (size_t i = 0; i < r->n; i++) {
        struct row *to = n ? &r->rows[n - 1] : NULL, *from = &r->rows[i];
        if (!to || by_name(to, from) != 0) {
            r->rows[n++] = *from;
            continue;
        }
        to->promised_mib = larger(to->promised_mib, from->promised_mib);
        to->p95_mib = larger(to->p95_mib, from->p95_mib);
        to->max_mib = larger(to->max_mib, from->max_mib);
        to->age_hours = larger(to->age_hours, from->age_hours);
        to->hours += from->hours;
        to->nodes += from->nodes;
        json_decref(from->item);
    }
    r->n = n;
}

static int64_t suggested_units(const struct row *row, int64_t unit_mib)
{
    int64_t mib = (row->max_mib * (100 + RIGHTSIZE_HEADROOM) + 99) / 100;
    int64_t units = (mib + unit_mib - 1) / unit_mib;
    return units ? units : 1;
}

static json_t *row_json(const struct row *row, int64_t unit_mib)
{
    json_t *o =
        json_pack("{ss ss ss ss sI sI sI sI sI sI}", "namespace", row->ns, "kind",
                  row->kind, "name", row->name, "container", row->container, "p95Mib",
                  (json_int_t)row->p95_mib, "maxMib", (json_int_t)row->max_mib, "hours",
                  (json_int_t)row->hours, "ageHours", (json_int_t)row->age_hours, "nodes",
                  (json_int_t)row->nodes, "suggestedUnits",
                  (json_int_t)suggested_units(row, unit_mib));
    if (row->promised_mib >= 0)
        json_object_set_new(o, "promisedMib", json_integer(row->promised_mib));
    return o;
}

static void add_amount(struct table *t, enum color color, int64_t mib, int64_t unit_mib)
{
    cleanup_buf struct buf text = {0};
    if (mib < 0)
        buf_addc(&text, '-');
    else
        show_amount(&text, mib, unit_mib);
    table_span(t, color, buf_span(&text));
}

static void add_age(struct table *t, int64_t hours)
{
    if (hours < HOURS_OF_A_DAY)
        table_cell(t, PLAIN, "%" PRId64 "h", hours);
    else
        table_cell(t, PLAIN, "%" PRId64 "d%" PRId64 "h", hours / HOURS_OF_A_DAY,
                   hours % HOURS_OF_A_DAY);
}

static void write_row(struct table *t, const struct row *row, int64_t unit_mib)
{
    int64_t units = suggested_units(row, unit_mib);
    bool less = row->promised_mib >= 0 && units * unit_mib < row->promised_mib;
    bool more = row->promised_mib >= 0 && row->max_mib > row->promised_mib;
    table_cell(t, PLAIN, "%s", row->ns);
    table_cell(t, PLAIN, "%s/%s", row->kind, row->name);
    table_cell(t, PLAIN, "%s", row->container);
    add_amount(t, PLAIN, row->promised_mib, unit_mib);
    add_amount(t, PLAIN, row->p95_mib, unit_mib);
    add_amount(t, more ? RED : PLAIN, row->max_mib, unit_mib);
    add_age(t, row->age_hours);
    table_end(t, less ? GREEN : more ? RED : PLAIN, "%" PRId64, units);
}

static void write_table(const struct rightsize *r, int64_t unit_mib, bool colors,
                        struct buf *out)
{
    static const char *const heads[] = {"NAMESPACE", "WORKLOAD", "CONTAINER", "PROMISED",
                                        "P95",       "MAX",      "AGE"};
    cleanup_table struct table t = {.colors = colors};
    if (r->n == 0) {
        buf_adds(out, "no workload has been measured\n");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        table_cell(&t, BOLD, "%s", heads[i]);
    table_end(&t, BOLD, "SUGGESTED");
    for (size_t i = 0; i < r->n; i++)
        write_row(&t, &r->rows[i], unit_mib);
    table_write(&t, out);
    buf_printf(out,
               "in units of %" PRId64 " MiB on one card; suggested: the maximum and "
               "%d %%\n",
               unit_mib, RIGHTSIZE_HEADROOM);
}

void rightsize_write(struct rightsize *r, enum show_format format, int64_t unit_mib,
                     bool colors, struct buf *out)
{
    join(r);
    if (format == SHOW_TABLE || format == SHOW_WIDE) {
        write_table(r, unit_mib, colors, out);
        return;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < r->n; i++)
        json_array_append_new(list, row_json(&r->rows[i], unit_mib));
    json_t *all =
        json_pack("{sI so}", "unitMib", (json_int_t)unit_mib, "workloads", list);
    show_dump(out, all, format == SHOW_YAML);
    json_decref(all);
}
