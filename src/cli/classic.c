/* SPDX-License-Identifier: Apache-2.0 */

/* --classic: the Go plugin's output, byte for byte. */

#include "cli/classic.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"
#include "cli/table.h"
#include "domain/promise.h"

enum {
    PENDING = -1,
    COUNT_MAX = 1024, /* no node has more cards */
};

/* Units of a pod on one card. */
struct go_share {
    int64_t card, units;
};

struct row {
    const struct cluster_state_pod *pod;
    struct go_share *shares;
    size_t n;
    bool split; /* by the allocation; else all of its memory is on one card, or PENDING */
};

struct go_node {
    const struct cluster_state_node *object;
    int64_t total, count;
    struct row *rows;
    size_t n;
    bool pending; /* a row is PENDING */
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
    for (size_t i = 0; i < row->n; i++)
        if (row->shares[i].card == card)
            units += row->shares[i].units;
    return units;
}

/* The first card of a pod; rows without a card come last. */
static uint64_t first_card(const struct row *row)
{
    int64_t card = row->shares[0].card;
    for (size_t i = 1; i < row->n; i++)
        if (row->shares[i].card < card)
            card = row->shares[i].card;
    return (uint64_t)card;
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    uint64_t p = first_card(x), q = first_card(y);
    return span_cmp(x->pod->node, y->pod->node)
               ?: (p > q) - (p < q)
               ?: span_cmp(x->pod->ns, y->pod->ns)
               ?: span_cmp(x->pod->name, y->pod->name)
               ?: span_cmp(x->pod->uid, y->pod->uid);
}

/* False: no such node. */
static bool collect(struct cluster *c, const struct cluster_state *cs, struct span name)
{
    const struct cluster_state_node **nodes;
    const struct cluster_state_pod **pods;
    size_t n = cluster_state_nodes(cs, &c->arena, &nodes), n_rows = 0,
           n_pods = cluster_state_pods(cs, &c->arena, &pods);
    struct row *rows = arena_alloc(&c->arena, n_pods * sizeof *rows), *row;
    bool found = !name.n;
    c->unit = "";
    c->nodes = arena_alloc(&c->arena, n * sizeof *c->nodes);
    for (size_t i = 0; i < n_pods; i++) {
        const struct pod only = {.allocation = pods[i]->allocation};
        struct promise promise;
        if (pods[i]->finished || pods[i]->go_units <= 0)
            continue;
        row = &rows[n_rows++];
        *row =
            (struct row){.pod = pods[i], .split = promise_of(&only, &c->arena, &promise)};
        row->n = row->split ? promise.n : 1;
        row->shares = arena_alloc(&c->arena, row->n * sizeof *row->shares);
        row->shares[0] = (struct go_share){PENDING, pods[i]->go_units};
        if (!row->split && !span_i64(pods[i]->idx, &row->shares[0].card))
            row->shares[0].card = PENDING;
        for (size_t k = 0; row->split && k < row->n; k++)
            row->shares[k] =
                (struct go_share){promise.shares[k].card, promise.shares[k].units};
    }
    row = rows;
    if (n_rows)
        qsort(rows, n_rows, sizeof *rows, compare_rows);
    for (size_t i = 0; i < n; i++) {
        const struct node_resources *has = &nodes[i]->allocatable;
        bool is = span_eq(nodes[i]->name, name);
        found |= is;
        if ((name.n && !is) || has->mem <= 0)
            continue;
        struct go_node *node = &c->nodes[c->n++];
        *node = (struct go_node){.object = nodes[i], .total = has->mem};
        node->count = has->cards > COUNT_MAX ? COUNT_MAX
                      : has->cards > 0       ? has->cards
                                             : 0;
        while (row < rows + n_rows && span_cmp(row->pod->node, nodes[i]->name) < 0)
            row++;
        node->rows = row;
        for (; row < rows + n_rows && span_eq(row->pod->node, nodes[i]->name); row++) {
            node->n++;
            node->pending |= !row->split && row->shares[0].card == PENDING;
        }
        if (!*c->unit && node->count > 0)
            c->unit = node->total / node->count > 100 ? "MiB" : "GiB";
        if (node->count > c->max_count)
            c->max_count = node->count;
        c->pending |= node->pending;
    }
    return found;
}

static struct span address_of(const struct go_node *node)
{
    return node->object->address.n ? node->object->address : SPAN("unknown");
}

static long long percent(int64_t used, int64_t total)
{
    return total > 0 ? (long long)((double)used / (double)total * 100) : 0;
}

/* The line below a table, as long as the Go plugin's is. */
static void add_rule(struct buf *out, size_t n)
{
    while (n--)
        buf_addc(out, '-');
    buf_addc(out, '\n');
}

/* Ends both layouts. */
static void add_total(struct buf *out, char before, int64_t used, int64_t total)
{
    buf_printf(out, "Allocated/Total GPU Memory In Cluster:%c%lld/%lld (%lld%%)\t\n",
               before, (long long)used, (long long)total, percent(used, total));
}

/* Does the node have that card, or does a pod's annotation name it? *used: units on it. */
static bool card_use(const struct go_node *node, int64_t card, int64_t *used)
{
    bool any = card >= 0 && card < node->count;
    *used = 0;
    for (size_t i = 0; i < node->n; i++) {
        *used += row_on(&node->rows[i], card);
        for (size_t k = 0; k < node->rows[i].n; k++)
            any |= node->rows[i].shares[k].card == card;
    }
    return any;
}

static void write_summary(struct buf *out, const struct cluster *c)
{
    int64_t all_used = 0, total = 0;
    size_t rule = 0;
    buf_adds(out, "NAME\tIPADDRESS\t");
    for (int64_t i = 0; i < c->max_count; i++)
        buf_printf(out, "GPU%lld(Allocated/Total)\t", (long long)i);
    buf_printf(out, "%sGPU Memory(%s)\n", c->pending ? "PENDING(Allocated)\t" : "",
               c->unit);
    for (const struct go_node *node = c->nodes; node < c->nodes + c->n; node++) {
        int64_t per_card = node->count ? node->total / node->count : 0, all = 0, used;
        size_t before = out->n;
        buf_printf(out, "%.*s\t%.*s\t", SPAN_ARG(node->object->name),
                   SPAN_ARG(address_of(node)));
        for (int64_t i = 0; i < c->max_count; i++) {
            bool has = card_use(node, i, &used);
            buf_printf(out, "%lld/%lld\t", (long long)used,
                       (long long)(has ? per_card : 0));
            all += used;
        }
        if (!c->max_count)
            buf_addc(out, '\t');
        if (c->pending && card_use(node, PENDING, &used)) {
            buf_add_i64(out, used);
            all += used;
        }
        buf_printf(out, "%s%lld/%lld\n", c->pending ? "\t" : "", (long long)all,
                   (long long)node->total);
        all_used += all;
        total += node->total;
        rule = rule ? rule : out->n - before + 20;
    }
    add_rule(out, rule);
    add_total(out, '\n', all_used, total);
}

static void write_details(struct buf *out, const struct cluster *c)
{
    int64_t all_used = 0, total = 0;
    size_t rule = 0;
    for (const struct go_node *node = c->nodes; node < c->nodes + c->n; node++) {
        int64_t used = 0;
        buf_printf(out, "\nNAME:\t%.*s\nIPADDRESS:\t%.*s\n\nNAME\tNAMESPACE\t",
                   SPAN_ARG(node->object->name), SPAN_ARG(address_of(node)));
        for (int64_t i = 0; i < node->count; i++)
            buf_printf(out, "GPU%lld(Allocated)\t", (long long)i);
        buf_adds(out, node->pending ? "Pending(Allocated)\t\n" : "\n");
        size_t before = out->n;
        ARRAY_EACH_ITEM(const struct row, row, node->rows, node->n)
        {
            buf_printf(out, "%.*s\t%.*s\t", SPAN_ARG(row->pod->name),
                       SPAN_ARG(row->pod->ns));
            for (int64_t k = 0; k < node->count; k++)
                buf_printf(out, "%lld\t", (long long)row_on(row, k));
            if (node->pending)
                buf_printf(out, "%lld\t",
                           (long long)row_on(row, row->split ? node->count : PENDING));
            buf_addc(out, '\n');
            for (size_t k = 0; k < row->n; k++)
                used += row->shares[k].units;
        }
        rule = rule ? rule : out->n - before + 10;
        buf_printf(out, "Allocated :\t%lld (%lld%%)\t\nTotal :\t%lld \t\n",
                   (long long)used, percent(used, node->total), (long long)node->total);
        add_rule(out, rule);
        all_used += used;
        total += node->total;
    }
    buf_adds(out, "\n\n");
    add_total(out, '\t', all_used, total);
}

bool classic_write(struct buf *out, const struct cluster_state *cs, struct span node,
                   bool details)
{
    cleanup_buf struct buf text = {0};
    cleanup_table struct table t = {0};
    struct cluster c = {0};
    bool found = collect(&c, cs, node);
    if (!found)
        buf_printf(out, "Failed due to nodes \"%.*s\" not found", SPAN_ARG(node));
    else
        (details ? write_details : write_summary)(&text, &c);
    for (struct span rest = buf_span(&text); rest.n;) { /* tabs separate the columns */
        struct span line = span_cut(&rest, '\n');
        bool more = true;
        while (more) {
            more = memchr(line.p, '\t', line.n) != NULL;
            table_span(&t, PLAIN, span_cut(&line, '\t'));
        }
        table_end(&t);
    }
    table_write(&t, out);
    arena_fini(&c.arena);
    return found;
}
