/* SPDX-License-Identifier: Apache-2.0 */

/* --classic: the Go plugin's output, byte for byte. */

#include "cli/classic.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cli/table.h"
#include "domain/promise.h"

enum {
    PENDING = -1,
    COUNT_MAX = 1024, /* no node has more cards */
};

/* A pod of a node. */
struct row {
    const struct cluster_state_pod *pod;
    struct promise split; /* n 0: all its memory is on `card` */
    int64_t card;
};

struct go_node {
    const struct cluster_state_node *object;
    int64_t total, count;
    struct row *rows;
    size_t n;
};

struct cluster {
    struct arena arena;
    struct go_node *nodes;
    size_t n;
    int64_t max_count;
    const char *unit;
    bool pending;
};

static int64_t row_on(const struct row *row, int64_t card)
{
    int64_t units = 0;
    if (!row->split.n)
        return row->card == card ? row->pod->go_units : 0;
    for (size_t i = 0; i < row->split.n; i++)
        if (row->split.shares[i].card == card)
            units += row->split.shares[i].units;
    return units;
}

static int64_t row_units(const struct row *row)
{
    int64_t units = 0;
    for (size_t i = 0; i < row->split.n; i++)
        units += row->split.shares[i].units;
    return row->split.n ? units : row->pod->go_units;
}

/* The first card of a pod, by which rows are sorted; rows without a card come last. */
static uint64_t sort_key(const struct row *row)
{
    int64_t card = row->card;
    for (size_t i = 0; i < row->split.n; i++)
        if (i == 0 || row->split.shares[i].card < card)
            card = row->split.shares[i].card;
    return (uint64_t)card;
}

static int by_card(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    uint64_t p = sort_key(x), q = sort_key(y);
    if (p != q)
        return p < q ? -1 : 1;
    int c = span_cmp(x->pod->ns, y->pod->ns);
    c = c ? c : span_cmp(x->pod->name, y->pod->name);
    return c ? c : span_cmp(x->pod->uid, y->pod->uid);
}

static void read_row(struct cluster *c, const struct cluster_state_pod *pod,
                     struct row *row)
{
    const struct pod only = {.allocation = pod->allocation};
    *row = (struct row){.pod = pod, .card = PENDING};
    if (!promise_of(&only, &c->arena, &row->split) && pod->idx.p &&
        !span_i64(pod->idx, &row->card))
        row->card = PENDING;
}

static int by_node(const void *a, const void *b)
{
    return span_cmp((*(const struct cluster_state_pod *const *)a)->node,
                    (*(const struct cluster_state_pod *const *)b)->node);
}

/* The pods of a node; `pods` is sorted by node. */
static const struct cluster_state_pod **
pods_of(struct span node, const struct cluster_state_pod **pods, size_t *n)
{
    size_t low = 0, high = *n, end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (span_cmp(pods[middle]->node, node) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (end = low; end < *n && span_eq(pods[end]->node, node); end++)
        ;
    *n = end - low;
    return pods + low;
}

static void add_rows(struct cluster *c, struct go_node *node,
                     const struct cluster_state_pod **pods, size_t n)
{
    pods = pods_of(node->object->name, pods, &n);
    node->rows = arena_alloc(&c->arena, n * sizeof *node->rows);
    for (size_t i = 0; i < n; i++)
        if (!pods[i]->finished && pods[i]->go_units > 0)
            read_row(c, pods[i], &node->rows[node->n++]);
    if (node->n)
        qsort(node->rows, node->n, sizeof *node->rows, by_card);
}

static bool has_pending(const struct go_node *node)
{
    for (size_t i = 0; i < node->n; i++)
        if (!node->rows[i].split.n && node->rows[i].card == PENDING)
            return true;
    return false;
}

static void add_node(struct cluster *c, const struct cluster_state_node *object,
                     const struct cluster_state_pod **pods, size_t n_pods)
{
    struct go_node *node = &c->nodes[c->n++];
    *node = (struct go_node){.object = object, .total = object->allocatable.mem};
    node->count = object->allocatable.cards > 0 ? object->allocatable.cards : 0;
    if (node->count > COUNT_MAX)
        node->count = COUNT_MAX;
    add_rows(c, node, pods, n_pods);
    if (!*c->unit && node->count > 0)
        c->unit = node->total / node->count > 100 ? "MiB" : "GiB";
    if (node->count > c->max_count)
        c->max_count = node->count;
    c->pending |= has_pending(node);
}

static bool collect(struct cluster *c, const struct cluster_state *cs, struct span name)
{
    const struct cluster_state_node **nodes;
    const struct cluster_state_pod **pods;
    size_t n = cluster_state_nodes(cs, &c->arena, &nodes),
           n_pods = cluster_state_pods(cs, &c->arena, &pods);
    bool found = !name.n;
    c->unit = "";
    if (n_pods)
        qsort(pods, n_pods, sizeof *pods, by_node);
    c->nodes = arena_alloc(&c->arena, n * sizeof *c->nodes);
    for (size_t i = 0; i < n; i++) {
        bool is = span_eq(nodes[i]->name, name);
        found |= is;
        if ((!name.n || is) && nodes[i]->allocatable.mem > 0)
            add_node(c, nodes[i], pods, n_pods);
    }
    return found;
}

static const struct span unknown = {"unknown", 7};

static struct span address_of(const struct go_node *node)
{
    return node->object->address.n ? node->object->address : unknown;
}

static long long percent(int64_t used, int64_t total)
{
    return total > 0 ? (long long)((double)used / (double)total * 100) : 0;
}

static void add_rule(struct table *t, size_t n)
{
    cleanup_buf struct buf dashes = {0};
    while (dashes.n < n)
        buf_addc(&dashes, '-');
    table_end(t, PLAIN, "%s", dashes.n ? dashes.p : "");
}

/* Does the node have that card, or does a pod's annotation name it? */
static bool has_card(const struct go_node *node, int64_t card)
{
    bool any = card < node->count;
    for (size_t i = 0; i < node->n && !any; i++) {
        const struct row *row = &node->rows[i];
        any = row->card == card && !row->split.n;
        for (size_t k = 0; k < row->split.n; k++)
            any |= row->split.shares[k].card == card;
    }
    return any;
}

static int64_t used_on(const struct go_node *node, int64_t card)
{
    int64_t used = 0;
    for (size_t i = 0; i < node->n; i++)
        used += row_on(&node->rows[i], card);
    return used;
}

/* Counts the bytes of a row before columns are aligned: the Go plugin's rule of dashes
 * has that length. */
struct line {
    struct table *table;
    size_t bytes;
};

static void cell(struct line *l, struct span text)
{
    table_span(l->table, PLAIN, text);
    l->bytes += text.n + 1;
}

static void cell_amounts(struct line *l, int64_t used, int64_t total)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "%lld", (long long)used);
    if (total >= 0)
        buf_printf(&text, "/%lld", (long long)total);
    cell(l, buf_span(&text));
}

static void add_summary(struct table *t, const struct cluster *c,
                        const struct go_node *node, int64_t *used, size_t *bytes)
{
    struct line l = {t, 0};
    int64_t per_card = node->count ? node->total / node->count : 0;
    *used = 0;
    cell(&l, node->object->name);
    cell(&l, address_of(node));
    for (int64_t i = 0; i < c->max_count; i++) {
        bool has = has_card(node, i);
        int64_t on = has ? used_on(node, i) : 0;
        cell_amounts(&l, on, has ? per_card : 0);
        *used += on;
    }
    if (!c->max_count)
        cell(&l, SPAN(""));
    if (c->pending && has_pending(node)) {
        cell_amounts(&l, used_on(node, PENDING), -1);
        *used += used_on(node, PENDING);
    } else if (c->pending) {
        cell(&l, SPAN(""));
    }
    int n = snprintf(NULL, 0, "%lld/%lld", (long long)*used, (long long)node->total);
    table_end(t, PLAIN, "%lld/%lld", (long long)*used, (long long)node->total);
    *bytes = l.bytes + (size_t)n + 1;
}

static void write_summary(struct table *t, const struct cluster *c)
{
    int64_t used = 0, total = 0;
    size_t rule = 0;
    table_cell(t, PLAIN, "NAME");
    table_cell(t, PLAIN, "IPADDRESS");
    for (int64_t i = 0; i < c->max_count; i++)
        table_cell(t, PLAIN, "GPU%lld(Allocated/Total)", (long long)i);
    if (c->pending)
        table_cell(t, PLAIN, "PENDING(Allocated)");
    table_end(t, PLAIN, "GPU Memory(%s)", c->unit);
    for (size_t i = 0; i < c->n; i++) {
        int64_t of_node;
        size_t bytes;
        add_summary(t, c, &c->nodes[i], &of_node, &bytes);
        used += of_node;
        total += c->nodes[i].total;
        rule = rule ? rule : bytes + 20;
    }
    add_rule(t, rule);
    table_end(t, PLAIN, "Allocated/Total GPU Memory In Cluster:");
    table_cell(t, PLAIN, "%lld/%lld (%lld%%)", (long long)used, (long long)total,
               percent(used, total));
    table_end(t, PLAIN, "%s", "");
}

static size_t add_pod(struct table *t, const struct go_node *node, const struct row *row,
                      bool pending)
{
    struct line l = {t, 0};
    cell(&l, row->pod->name);
    cell(&l, row->pod->ns);
    for (int64_t i = 0; i < node->count; i++)
        cell_amounts(&l, row_on(row, i), -1);
    if (pending)
        cell_amounts(&l, row->split.n ? row_on(row, node->count) : row_on(row, PENDING),
                     -1);
    table_end(t, PLAIN, "%s", "");
    return l.bytes + 1;
}

static int64_t add_details(struct table *t, const struct go_node *node, size_t *rule)
{
    bool pending = has_pending(node);
    int64_t used = 0;
    size_t bytes = 0;
    table_end(t, PLAIN, "%s", "");
    table_cell(t, PLAIN, "NAME:");
    table_end(t, PLAIN, "%.*s", SPAN_ARG(node->object->name));
    table_cell(t, PLAIN, "IPADDRESS:");
    table_end(t, PLAIN, "%.*s", SPAN_ARG(address_of(node)));
    table_end(t, PLAIN, "%s", "");
    table_cell(t, PLAIN, "NAME");
    table_cell(t, PLAIN, "NAMESPACE");
    for (int64_t i = 0; i < node->count; i++)
        table_cell(t, PLAIN, "GPU%lld(Allocated)", (long long)i);
    if (pending)
        table_cell(t, PLAIN, "Pending(Allocated)");
    table_end(t, PLAIN, "%s", "");
    for (size_t i = 0; i < node->n; i++) {
        bytes += add_pod(t, node, &node->rows[i], pending);
        used += row_units(&node->rows[i]);
    }
    *rule = *rule ? *rule : bytes + 10;
    table_cell(t, PLAIN, "Allocated :");
    table_cell(t, PLAIN, "%lld (%lld%%)", (long long)used, percent(used, node->total));
    table_end(t, PLAIN, "%s", "");
    table_cell(t, PLAIN, "Total :");
    table_cell(t, PLAIN, "%lld ", (long long)node->total);
    table_end(t, PLAIN, "%s", "");
    add_rule(t, *rule);
    return used;
}

static void write_details(struct table *t, const struct cluster *c)
{
    int64_t used = 0, total = 0;
    size_t rule = 0;
    for (size_t i = 0; i < c->n; i++) {
        used += add_details(t, &c->nodes[i], &rule);
        total += c->nodes[i].total;
    }
    table_end(t, PLAIN, "%s", "");
    table_end(t, PLAIN, "%s", "");
    table_cell(t, PLAIN, "Allocated/Total GPU Memory In Cluster:");
    table_cell(t, PLAIN, "%lld/%lld (%lld%%)", (long long)used, (long long)total,
               percent(used, total));
    table_end(t, PLAIN, "%s", "");
}

bool classic_write(struct buf *out, const struct cluster_state *cs, struct span node,
                   bool details)
{
    cleanup_table struct table t = {0};
    struct cluster c = {0};
    bool found = collect(&c, cs, node);
    if (!found)
        buf_printf(out, "Failed due to nodes \"%.*s\" not found", SPAN_ARG(node));
    else
        (details ? write_details : write_summary)(&t, &c);
    if (found)
        table_write(&t, out);
    arena_fini(&c.arena);
    return found;
}
