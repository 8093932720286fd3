/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "cli/heartbeat.h"
#include "cli/show_priv.h"
#include "domain/quantity.h"

static bool is_wide(const struct page *p)
{
    return p->show->format == SHOW_WIDE;
}

/* Shares of compute are in the table of cards where pods or columns are asked for. */
static bool has_compute(const struct page *p)
{
    return is_wide(p) || p->show->details;
}

static void add_header(struct page *p)
{
    static const char *const first[] = {"NODE", "GPU", "MODEL", "HEALTH"};
    static const char *const wide[] = {"WITHHELD", "OVERUSE", "UTIL",    "TEMP",
                                       "ADDRESS",  "SOURCE",  "MEASURED"};
    cleanup_buf struct buf unit = {0};
    quantity_write_unit(&unit, p->unit);
    for (size_t i = 0; i < ARRAY_LEN(first); i++)
        table_cell(&p->table, BOLD, "%s", first[i]);
    table_cell(&p->table, BOLD, "PROMISED/TOTAL(%s)", unit.p);
    table_cell(&p->table, BOLD, "USED");
    table_cell(&p->table, BOLD, "FREE");
    if (has_compute(p))
        table_cell(&p->table, BOLD, "COMPUTE");
    if (!is_wide(p)) {
        table_end(&p->table, BOLD, "PODS");
        return;
    }
    table_cell(&p->table, BOLD, "PODS");
    for (size_t i = 0; i < ARRAY_LEN(wide); i++)
        table_cell(&p->table, BOLD, "%s", wide[i]);
    table_end(&p->table, BOLD, "UUID");
}

static enum color promised_color(const struct card *card)
{
    if (card->overcommitted)
        return RED;
    return card->promised_mib >= card->total_mib && card->total_mib > 0 ? YELLOW : PLAIN;
}

static void add_promised(struct page *p, const struct card *card)
{
    cleanup_buf struct buf text = {0};
    show_amount(&text, card->promised_mib, p->unit);
    buf_addc(&text, '/');
    buf_add_i64(&text, card->total_mib / p->unit);
    if (card->overcommitted)
        buf_adds(&text, "!");
    table_span(&p->table, promised_color(card), buf_span(&text));
}

/* What is promised of the card's compute. Pods with whole cards have all of it. */
static void add_compute(struct page *p, const struct ledger_node *node,
                        const struct card *card)
{
    bool over = card->core_promised > REQUEST_CORE;
    if (!node->has_core && !card->core_promised)
        table_cell(&p->table, PLAIN, "-");
    else
        table_cell(&p->table, over ? RED : PLAIN, "%d%%%s",
                   card->whole && !over ? REQUEST_CORE : card->core_promised,
                   over ? "!" : "");
}

static const struct scv_card *
scv_card_of(const struct page *p, const struct ledger_node *node, const struct card *card)
{
    const struct cluster_state_scv *s = cluster_state_scv(p->cs, node->name);
    for (size_t i = 0; s && i < s->scv.n_cards; i++)
        if (s->scv.cards[i].id == card->index)
            return &s->scv.cards[i];
    return NULL;
}

static void add_age(struct buf *out, int64_t s)
{
    if (s < 0)
        s = 0;
    if (s < 120)
        buf_printf(out, "%" PRId64 "s", s);
    else if (s < 120 * 60)
        buf_printf(out, "%" PRId64 "m", s / 60);
    else
        buf_printf(out, "%" PRId64 "h", s / 3600);
}

static const char *source_name(enum node_source source)
{
    return source == SOURCE_SCV ? "scv" : source == SOURCE_CAPACITY ? "capacity" : "none";
}

static void add_wide(struct page *p, const struct ledger_node *node,
                     const struct card *card)
{
    const struct scv_card *scv = scv_card_of(p, node, card);
    const struct cluster_state_node *object = cluster_state_node(p->cs, node->name);
    struct ledger_node_info info = ledger_node_info(node);
    cleanup_buf struct buf age = {0};
    show_page_amount(p, card->withheld_mib ? YELLOW : PLAIN, card->withheld_mib);
    show_page_amount(p, card->overuse_mib ? RED : PLAIN,
                     card->use_known ? card->overuse_mib : -1);
    if (scv && scv->has_utilization)
        table_cell(&p->table, PLAIN, "%" PRId64 "%%", scv->utilization);
    else
        table_cell(&p->table, PLAIN, "-");
    if (scv && scv->has_temperature)
        table_cell(&p->table, PLAIN, "%" PRId64 "C", scv->temperature);
    else
        table_cell(&p->table, PLAIN, "-");
    table_span(&p->table, PLAIN,
               object && object->address.n ? object->address : SPAN("-"));
    table_cell(&p->table, PLAIN, "%s", source_name(node->source));
    if (info.has_sample)
        add_age(&age, p->show->now_s - info.sample_s);
    else
        buf_adds(&age, "-");
    table_span(&p->table, PLAIN, buf_span(&age));
}

static void add_card(struct page *p, const struct ledger_node *node,
                     const struct card *card)
{
    struct span none = SPAN("-");
    table_span(&p->table, PLAIN, node->name);
    table_cell(&p->table, PLAIN, "%" PRId32, card->index);
    table_span(&p->table, PLAIN, card->model.n ? card->model : none);
    table_cell(&p->table,
               card->state != CARD_AVAILABLE ? RED
               : node->cordoned              ? YELLOW
                                             : GREEN,
               "%s%s", show_health(card->state), node->cordoned ? "," SHOW_CORDONED : "");
    add_promised(p, card);
    show_page_amount(p, PLAIN, card->used_mib);
    table_cell(&p->table, PLAIN, "%" PRId64,
               node->state == NODE_USABLE ? card->free_mib / p->unit : 0);
    if (has_compute(p))
        add_compute(p, node, card);
    if (!is_wide(p)) {
        table_end(&p->table, PLAIN, "%" PRIu32, card->pods);
        return;
    }
    table_cell(&p->table, PLAIN, "%" PRIu32, card->pods);
    add_wide(p, node, card);
    table_end(&p->table, PLAIN, "%.*s", SPAN_ARG(card->uuid.n ? card->uuid : none));
}

struct sums {
    int64_t total, promised, used, free;
    int64_t cordoned; /* part of `free` that is on cordoned nodes */
    size_t cards, healthy, nodes, unmeasured;
};

static void sum_card(struct sums *s, const struct ledger_node *node,
                     const struct card *card)
{
    s->cards++;
    s->healthy += card->state == CARD_AVAILABLE;
    s->total += card->total_mib;
    s->promised += card->promised_mib;
    s->used += card->used_mib > 0 ? card->used_mib : 0;
    s->unmeasured += card->used_mib < 0;
    int64_t free = node->state == NODE_USABLE ? card->free_mib : 0;
    s->free += free;
    s->cordoned += node->cordoned ? free : 0;
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static void add_sums(struct page *p, struct buf *out, const struct sums *s)
{
    size_t pending = ledger_pending(cluster_state_ledger(p->cs));
    int64_t percent = s->total ? s->promised * 100 / s->total : 0;
    show_amount(out, s->promised, p->unit);
    buf_adds(out, " of ");
    show_amount(out, s->total, p->unit);
    buf_addc(out, ' ');
    quantity_write_unit(out, p->unit);
    buf_printf(out, " promised (%" PRId64 "%%), ", percent);
    show_amount(out, s->free, p->unit);
    buf_adds(out, " free");
    if (s->cordoned) {
        buf_adds(out, " (");
        show_amount(out, s->cordoned, p->unit);
        buf_adds(out, " on cordoned nodes)");
    }
    if (s->unmeasured < s->cards) {
        buf_adds(out, ", ");
        show_amount(out, s->used, p->unit);
        buf_adds(out, " in use");
    }
    buf_printf(out, "; %zu card%s (%zu healthy) on %zu node%s", s->cards,
               plural(s->cards), s->healthy, s->nodes, plural(s->nodes));
    if (pending && !p->show->node.n)
        buf_printf(out, "; %zu pending pod%s", pending, plural(pending));
    buf_addc(out, '\n');
}

/* Problems of a node, one line each. */
static void add_notes(struct buf *out, const struct cluster_state *cs,
                      const struct ledger_node *node)
{
    cleanup_buf struct buf why = {0}, note = {0};
    show_state(&why, node);
    heartbeat_note(&note, cs, node);
    if (why.n) {
        buf_adds(out, "! ");
        table_plain(out, node->name);
        buf_adds(out, node->cordoned ? " (" SHOW_CORDONED "): " : ": ");
        table_plain(out, buf_span(&why));
        buf_addc(out, '\n');
    }
    if (note.n) {
        buf_adds(out, "! ");
        table_plain(out, node->name);
        buf_printf(out, ": %s\n", note.p);
    }
    if (node->unknown_listed_card >= 0) {
        buf_adds(out, "! ");
        table_plain(out, node->name);
        buf_printf(out,
                   ": its ConfigMap lists GPU%" PRId32 ", which the node does not have\n",
                   node->unknown_listed_card);
    }
}

bool show_table(struct buf *out, const struct cluster_state *cs, const struct show *show)
{
    struct page p = {.cs = cs,
                     .show = show,
                     .unit = ledger_settings(cluster_state_ledger(cs))->unit_mib};
    const struct ledger_node **nodes;
    struct sums sums = {0};
    size_t n = show_nodes(cluster_state_ledger(cs), show->node, &p.arena, &nodes);
    add_header(&p);
    for (size_t i = 0; i < n; i++) {
        sums.nodes++;
        for (uint32_t k = 0; k < nodes[i]->n_cards; k++) {
            add_card(&p, nodes[i], &nodes[i]->cards[k]);
            sum_card(&sums, nodes[i], &nodes[i]->cards[k]);
        }
    }
    if (n || !show->node.n) {
        show_page_write(&p, out);
        if (show->unit_assumed)
            show_unit_assumed(out, p.unit);
        for (size_t i = 0; i < n; i++)
            add_notes(out, cs, nodes[i]);
        if (show->details)
            show_page_details(&p, out, nodes, n);
        buf_addc(out, '\n');
        add_sums(&p, out, &sums);
    }
    table_fini(&p.table);
    arena_fini(&p.arena);
    return n || !show->node.n;
}
