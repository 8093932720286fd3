/* SPDX-License-Identifier: Apache-2.0 */

/* What is measured now beside what is promised: a row for each pod and card. */

#include "cli/usage.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "domain/quantity.h"

struct row {
    const struct ledger_pod *pod;
    const struct card *card;
    int64_t promised_mib; /* -1: none that is known */
    struct ledger_use use;
};

struct rows {
    struct row *items;
    size_t n, cap;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = span_cmp(x->pod->ns, y->pod->ns);
    order = order ? order : span_cmp(x->pod->name, y->pod->name);
    order = order ? order : span_cmp(x->pod->uid, y->pod->uid);
    return order ? order
                 : (x->card->index > y->card->index) - (x->card->index < y->card->index);
}

static void collect_rows(const struct ledger *l, struct span ns, struct rows *rows)
{
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        const struct ledger_pod *pod = node ? node->pods : NULL;
        for (; pod; pod = pod->next) {
            for (uint32_t k = 0; k < node->n_cards; k++) {
                struct row row = {.pod = pod, .card = &node->cards[k]};
                row.promised_mib = ledger_pod_mib(pod, row.card);
                bool used = ledger_pod_use(node, pod, row.card, &row.use);
                if (!used)
                    row.use = (struct ledger_use){-1, -1};
                if ((ns.n && !span_eq(pod->ns, ns)) || (!used && row.promised_mib < 0))
                    continue;
                MEM_GROW(rows->items, rows->cap, rows->n + 1);
                rows->items[rows->n++] = row;
            }
        }
    }
    if (rows->n)
        qsort(rows->items, rows->n, sizeof *rows->items, compare_rows);
}

static void add_amount(struct table *t, enum color color, int64_t mib, int64_t unit)
{
    cleanup_buf struct buf text = {0};
    if (mib < 0)
        buf_addc(&text, '-');
    else
        show_amount(&text, mib, unit);
    table_span(t, color, buf_span(&text));
}

static void write_table(struct buf *out, const struct rows *rows, int64_t unit,
                        bool colors)
{
    static const char *const heads[] = {"NAMESPACE", "POD",      "NODE",
                                        "GPU",       "PROMISED", "USED"};
    cleanup_table struct table t = {.colors = colors};
    if (!rows->n) {
        buf_adds(out, "no pod has a promise or uses a card\n");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        table_cell(&t, BOLD, "%s", heads[i]);
    table_end(&t, BOLD, "SM");
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *r = &rows->items[i];
        bool over = r->promised_mib >= 0 && r->use.used_mib > r->promised_mib;
        table_span(&t, PLAIN, r->pod->ns);
        table_span(&t, PLAIN, r->pod->name);
        table_span(&t, PLAIN, r->pod->node->name);
        table_cell(&t, PLAIN, "%" PRId32, r->card->index);
        add_amount(&t, PLAIN, r->promised_mib, unit);
        add_amount(&t, over ? RED : PLAIN, r->use.used_mib, unit);
        if (r->use.sm_percent < 0)
            table_end(&t, PLAIN, "-");
        else
            table_end(&t, PLAIN, "%" PRId64 "%%", (int64_t)r->use.sm_percent);
    }
    table_write(&t, out);
    buf_adds(out, "in units of ");
    quantity_write_unit(out, unit);
    buf_adds(out, ", measured now; Prometheus has the history\n");
}

/* Unknown amounts are left out. */
static json_t *row_json(const struct row *r)
{
    json_t *o =
        json_pack("{ss% ss% ss% si}", "namespace", r->pod->ns.p, r->pod->ns.n, "name",
                  r->pod->name.p, r->pod->name.n, "node", r->pod->node->name.p,
                  r->pod->node->name.n, "gpu", (int)r->card->index);
    const struct {
        const char *key;
        int64_t value;
    } amounts[] = {{"promisedMiB", r->promised_mib},
                   {"usedMiB", r->use.used_mib},
                   {"utilizationPercent", r->use.sm_percent}};
    for (size_t i = 0; i < ARRAY_LEN(amounts); i++)
        if (amounts[i].value >= 0)
            json_object_set_new(o, amounts[i].key, json_integer(amounts[i].value));
    return o;
}

void usage_write(struct buf *out, const struct cluster_state *cs, struct span ns,
                 enum show_format format, bool colors)
{
    const struct ledger *l = cluster_state_ledger(cs);
    int64_t unit = ledger_settings(l)->unit_mib;
    struct rows rows = {0};
    collect_rows(l, ns, &rows);
    if (format == SHOW_TABLE || format == SHOW_WIDE) {
        write_table(out, &rows, unit, colors);
    } else {
        json_t *list = json_array();
        for (size_t i = 0; i < rows.n; i++)
            json_array_append_new(list, row_json(&rows.items[i]));
        json_t *all = json_pack("{sI so}", "unitMiB", (json_int_t)unit, "pods", list);
        show_dump(out, all, format == SHOW_YAML);
        json_decref(all);
    }
    free(rows.items);
}
