/* SPDX-License-Identifier: Apache-2.0 */

/* A cluster_state as tables, as JSON and as YAML. */

#include "cli/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "placement/reason.h"

/* The tables in progress. */
struct page {
    const struct cluster_state *cs;
    const struct show *show;
    int64_t unit;
    struct arena arena;
    struct table table;
};

static int by_node(const void *a, const void *b)
{
    return span_cmp((*(const struct ledger_node *const *)a)->name,
                    (*(const struct ledger_node *const *)b)->name);
}

static int by_pod(const void *a, const void *b)
{
    const struct ledger_pod *x = *(const struct ledger_pod *const *)a;
    const struct ledger_pod *y = *(const struct ledger_pod *const *)b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

static bool is_relevant(const struct ledger_node *node)
{
    bool plain = node->state == NODE_NO_GPU || node->state == NODE_UNKNOWN;
    return !plain || node->pods || node->n_cards || node->unknown_listed_card >= 0;
}

size_t show_nodes(const struct ledger *l, struct span only, struct arena *a,
                  const struct ledger_node ***out)
{
    uint32_t slots = ledger_node_slots(l);
    size_t n = 0;
    *out = arena_alloc(a, (slots + 1) * sizeof **out);
    if (only.n) {
        (*out)[0] = ledger_node_find(l, only);
        return (*out)[0] != NULL;
    }
    for (uint32_t i = 0; i < slots; i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (node && is_relevant(node))
            (*out)[n++] = node;
    }
    if (n)
        qsort(*out, n, sizeof **out, by_node);
    return n;
}

static size_t sorted(const struct ledger_pod *first, struct arena *a,
                     const struct ledger_pod ***out)
{
    size_t n = 0, i = 0;
    for (const struct ledger_pod *pod = first; pod; pod = pod->next)
        n++;
    *out = arena_alloc(a, n * sizeof **out);
    for (const struct ledger_pod *pod = first; pod; pod = pod->next)
        (*out)[i++] = pod;
    if (n)
        qsort(*out, n, sizeof **out, by_pod);
    return n;
}

size_t show_pods_on(const struct ledger_node *node, struct arena *a,
                    const struct ledger_pod ***out)
{
    return sorted(node->pods, a, out);
}

static size_t show_pending(const struct ledger *l, struct arena *a,
                           const struct ledger_pod ***out)
{
    return sorted(ledger_first_pending(l), a, out);
}

const char *show_health(enum card_state out)
{
    static const char *const names[] = {[CARD_AVAILABLE] = "Healthy",
                                        [CARD_UNHEALTHY] = "Unhealthy",
                                        [CARD_LISTED] = "Excluded",
                                        [CARD_HELD] = "OtherPlugin",
                                        [CARD_DUPLICATE] = "DuplicateUUID"};
    return names[out];
}

void show_amount(struct buf *out, int64_t mib, int64_t unit)
{
    int64_t tenths = mib / unit * 10 + mib % unit * 10 / unit;
    buf_add_i64(out, tenths / 10);
    if (mib % unit == 0)
        return;
    buf_addc(out, '.');
    buf_add_i64(out, tenths % 10);
}

struct show_units show_units(int64_t mib, int64_t unit)
{
    cleanup_buf struct buf text = {0};
    struct show_units units;
    show_amount(&text, mib, unit);
    buf_addc(&text, ' ');
    quantity_write_unit(&text, unit);
    snprintf(units.s, sizeof units.s, "%s", text.p);
    return units;
}

void show_unit_assumed(struct buf *out, int64_t unit_mib)
{
    buf_adds(out,
             "! cannot derive the unit of " KEY_GPU_MEM " from the nodes' capacity, and "
             "the extender is unavailable: assuming ");
    quantity_write_unit(out, unit_mib);
    buf_adds(out, " (set --memory-unit)\n");
}

void show_state(struct buf *out, const struct ledger_node *node)
{
    struct request any = {.kind = REQUEST_MEMORY, .cards = 1};
    if (node->state != NODE_USABLE || node->mode == NODE_MODE_WRONG)
        reason_add(out, node, &any, select_fit(node, &any));
}

/* Whether the item of the node's processList is shown for itself: not if it is a container
 * of a pod that the ledger has on the node, because the pod's row has its use. */
static bool show_is_other_use(const struct ledger_node *node, const struct scv_process *p)
{
    for (const struct ledger_pod *pod = node->pods; pod && !p->pid; pod = pod->next)
        if (span_eq(pod->name, p->pod) && span_eq(pod->ns, p->ns))
            return false;
    return true;
}

static const struct scv_card *scv_card_of(const struct cluster_state *cs,
                                          struct span node, int32_t index)
{
    const struct cluster_state_scv *s = cluster_state_scv(cs, node);
    for (size_t i = 0; s && i < s->scv.n_cards; i++)
        if (s->scv.cards[i].id == index)
            return &s->scv.cards[i];
    return NULL;
}

static struct buf amount_of(const struct page *p, int64_t mib)
{
    struct buf text = {0};
    if (mib < 0)
        buf_adds(&text, "-");
    else
        show_amount(&text, mib, p->unit);
    return text;
}

static void add_amount(struct page *p, enum color color, int64_t mib)
{
    cleanup_buf struct buf text = amount_of(p, mib);
    table_span(&p->table, color, buf_span(&text));
}

/* Ends the line. */
static void add_last_amount(struct page *p, int64_t mib)
{
    cleanup_buf struct buf text = amount_of(p, mib);
    table_end(&p->table, PLAIN, "%s", text.p);
}

static void write_page(struct page *p, struct buf *out)
{
    p->table.colors = p->show->colors;
    table_write(&p->table, out);
    table_fini(&p->table);
}

static void percent(struct page *p, int64_t value)
{
    if (value < 0)
        table_cell(&p->table, PLAIN, "-");
    else
        table_cell(&p->table, PLAIN, "%" PRId64 "%%", value);
}

/* What is used, and if the pod was promised a share, what that is. */
static void add_compute(struct page *p, int64_t used, uint32_t promised)
{
    if (!promised)
        percent(p, used);
    else if (used < 0)
        table_cell(&p->table, PLAIN, "-/%u%%", promised);
    else
        table_cell(&p->table, used > promised ? YELLOW : PLAIN, "%" PRId64 "%%/%u%%",
                   used, promised);
}

/* `mib`: the promise; -1: none that is known. */
static void add_pod_row(struct page *p, const struct ledger_node *node,
                        const struct ledger_pod *pod, const char *gpu, int64_t mib,
                        const struct ledger_use *use, uint32_t core)
{
    const struct cluster_state_pod *object = cluster_state_pod(p->cs, pod->uid);
    bool assigned = object && span_eq(object->assigned, SPAN("true"));
    table_span(&p->table, PLAIN, node->name);
    table_cell(&p->table, gpu ? PLAIN : YELLOW, "%s", gpu ? gpu : "none");
    table_span(&p->table, PLAIN, pod->ns);
    table_span(&p->table, PLAIN, pod->name);
    add_amount(p, PLAIN, mib);
    add_amount(p, mib >= 0 && use->used_mib > mib ? RED : PLAIN, use->used_mib);
    add_compute(p, use->sm_percent, core);
    table_end(&p->table, PLAIN, "%s",
              pod->running ? "running"
              : assigned   ? "assigned"
                           : "bound");
}

/* The pods of the node, of show->ns if that is set. */
static size_t list_pods(const struct show *show, const struct ledger_node *node,
                        struct arena *a, const struct ledger_pod ***pods)
{
    size_t n = show_pods_on(node, a, pods), kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!show->ns.n || span_eq((*pods)[i]->ns, show->ns))
            (*pods)[kept++] = (*pods)[i];
    return kept;
}

static void add_pod_rows(struct page *p, const struct ledger_node *node)
{
    static const struct ledger_use unknown = {-1, -1};
    const struct ledger_pod **pods;
    size_t n = list_pods(p->show, node, &p->arena, &pods);
    for (size_t i = 0; i < n; i++) {
        bool any = false;
        for (uint32_t k = 0; k < node->n_cards; k++) {
            int64_t mib = ledger_pod_mib(pods[i], &node->cards[k]);
            cleanup_free char *gpu = xasprintf("%" PRId32, node->cards[k].index);
            struct ledger_use use = unknown;
            if (!ledger_pod_use(node, pods[i], &node->cards[k], &use)) {
                if (mib < 0)
                    continue;
                use = unknown;
            }
            add_pod_row(p, node, pods[i], gpu, mib, &use,
                        ledger_pod_core(pods[i], &node->cards[k]));
            any = true;
        }
        if (!any && pods[i]->request->kind != REQUEST_NONE)
            add_pod_row(p, node, pods[i], NULL, -1, &unknown, 0);
    }
}

static void add_names(struct page *p, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (i + 1 < n ? table_cell : table_end)(&p->table, BOLD, "%s", names[i]);
}

static void add_pending(struct page *p, struct buf *out)
{
    static const char *const names[] = {"NAMESPACE", "PENDING POD", "REQUEST",
                                        "PRIORITY"};
    const struct ledger_pod **pods;
    size_t n = show_pending(cluster_state_ledger(p->cs), &p->arena, &pods);
    if (!n || p->show->node.n)
        return;
    buf_addc(out, '\n');
    add_names(p, names, ARRAY_LEN(names));
    for (size_t i = 0; i < n; i++) {
        cleanup_buf struct buf request = {0};
        if (pods[i]->invalid_reason)
            buf_adds(&request, pods[i]->invalid_reason);
        else
            request_write(&request, pods[i]->request, p->unit);
        table_span(&p->table, PLAIN, pods[i]->ns);
        table_span(&p->table, PLAIN, pods[i]->name);
        table_span(&p->table, pods[i]->invalid_reason ? RED : PLAIN, buf_span(&request));
        table_end(&p->table, PLAIN, "%" PRId32, pods[i]->priority);
    }
    write_page(p, out);
}

static int32_t index_of(const struct ledger_node *node, struct span uuid)
{
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (span_eq(node->cards[i].uuid, uuid))
            return node->cards[i].index;
    return -1;
}

static void add_other_use(struct page *p, const struct ledger_node *node,
                          const struct scv_process *use)
{
    int32_t index = index_of(node, use->uuid);
    cleanup_buf struct buf what = {0};
    buf_add_span(&what, use->name);
    if (!use->pid)
        buf_printf(&what, "pod %.*s/%.*s", SPAN_ARG(use->ns), SPAN_ARG(use->pod));
    else if (use->unmapped)
        buf_adds(&what, ", not known whether in a pod");
    else
        buf_adds(&what, ", outside Kubernetes");
    table_span(&p->table, PLAIN, node->name);
    if (index < 0)
        table_cell(&p->table, PLAIN, "-");
    else
        table_cell(&p->table, PLAIN, "%" PRId32, index);
    table_span(&p->table, YELLOW, buf_span(&what));
    if (use->pid)
        table_cell(&p->table, PLAIN, "%" PRId64, use->pid);
    else
        table_cell(&p->table, PLAIN, "-");
    percent(p, use->sm_percent);
    add_last_amount(p, use->used_mib);
}

/* What uses cards without a promise. */
static void add_other_uses(struct page *p, struct buf *out,
                           const struct ledger_node **nodes, size_t n)
{
    static const char *const names[] = {"NODE", "GPU", "OTHER USE", "PID", "SM", "USED"};
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const struct cluster_state_scv *s = cluster_state_scv(p->cs, nodes[i]->name);
        for (size_t k = 0; s && k < s->scv.n_processes; k++) {
            if (!show_is_other_use(nodes[i], &s->scv.processes[k]))
                continue;
            if (!any)
                add_names(p, names, ARRAY_LEN(names));
            any = true;
            add_other_use(p, nodes[i], &s->scv.processes[k]);
        }
    }
    if (!any)
        return;
    buf_addc(out, '\n');
    write_page(p, out);
}

/* What each pod was promised of each card, and uses of it now. */
static void add_pods(struct page *p, struct buf *out, const struct ledger_node **nodes,
                     size_t n)
{
    static const char *const names[] = {"NODE",     "GPU",  "NAMESPACE", "POD",
                                        "PROMISED", "USED", "SM",        "STATE"};
    add_names(p, names, ARRAY_LEN(names));
    for (size_t i = 0; i < n; i++)
        add_pod_rows(p, nodes[i]);
    write_page(p, out);
}

static void add_details(struct page *p, struct buf *out, const struct ledger_node **nodes,
                        size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= nodes[i]->pods != NULL;
    if (any) {
        buf_addc(out, '\n');
        add_pods(p, out, nodes, n);
    }
    add_other_uses(p, out, nodes, n);
    add_pending(p, out);
}

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
static void add_card_compute(struct page *p, const struct ledger_node *node,
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
    const struct scv_card *scv = scv_card_of(p->cs, node->name, card->index);
    const struct cluster_state_node *object = cluster_state_node(p->cs, node->name);
    struct ledger_node_info info = ledger_node_info(node);
    cleanup_buf struct buf age = {0};
    add_amount(p, card->withheld_mib ? YELLOW : PLAIN, card->withheld_mib);
    add_amount(p, card->overuse_mib ? RED : PLAIN,
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
    add_amount(p, PLAIN, card->used_mib);
    table_cell(&p->table, PLAIN, "%" PRId64,
               node->state == NODE_USABLE ? card->free_mib / p->unit : 0);
    if (has_compute(p))
        add_card_compute(p, node, card);
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
    buf_printf(out, " of %s promised (%" PRId64 "%%), ", show_units(s->total, p->unit).s,
               percent);
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
    cluster_state_note_heartbeat(&note, cs, node);
    if (why.n)
        table_line(out, "! %.*s%s: %s", SPAN_ARG(node->name),
                   node->cordoned ? " (" SHOW_CORDONED ")" : "", why.p);
    if (note.n)
        table_line(out, "! %.*s: %s", SPAN_ARG(node->name), note.p);
    if (node->unknown_listed_card >= 0)
        table_line(out,
                   "! %.*s: its ConfigMap lists GPU%" PRId32
                   ", which the node does not have",
                   SPAN_ARG(node->name), node->unknown_listed_card);
}

static bool show_table(struct buf *out, const struct cluster_state *cs,
                       const struct show *show)
{
    struct page p = {.cs = cs,
                     .show = show,
                     .unit = ledger_settings(cluster_state_ledger(cs))->unit_mib};
    const struct ledger_node **nodes;
    struct sums sums = {0};
    size_t n = show_nodes(cluster_state_ledger(cs), show->node, &p.arena, &nodes);
    if (show->usage) {
        add_pods(&p, out, nodes, n);
        buf_adds(out, "in units of ");
        quantity_write_unit(out, p.unit);
        buf_addc(out, '\n');
        if (show->unit_assumed)
            show_unit_assumed(out, p.unit);
        arena_fini(&p.arena);
        return true;
    }
    add_header(&p);
    for (size_t i = 0; i < n; i++) {
        sums.nodes++;
        for (uint32_t k = 0; k < nodes[i]->n_cards; k++) {
            add_card(&p, nodes[i], &nodes[i]->cards[k]);
            sum_card(&sums, nodes[i], &nodes[i]->cards[k]);
        }
    }
    if (n || !show->node.n) {
        write_page(&p, out);
        if (show->unit_assumed)
            show_unit_assumed(out, p.unit);
        for (size_t i = 0; i < n; i++)
            add_notes(out, cs, nodes[i]);
        if (show->details)
            add_details(&p, out, nodes, n);
        buf_addc(out, '\n');
        add_sums(&p, out, &sums);
    }
    table_fini(&p.table);
    arena_fini(&p.arena);
    return n || !show->node.n;
}

static json_t *to_json_string(struct span text)
{
    json_t *s = json_stringn(text.n ? text.p : "", text.n);
    return s ? s : json_string("?"); /* invalid UTF-8 */
}

static void put_text(json_t *o, const char *key, struct span text)
{
    if (text.n)
        json_object_set_new(o, key, to_json_string(text));
}

static void put(json_t *o, const char *key, int64_t number)
{
    json_object_set_new(o, key, json_integer(number));
}

/* False is left out. */
static void put_flag(json_t *o, const char *key, bool value)
{
    if (value)
        json_object_set_new(o, key, json_true());
}

static void put_use(json_t *o, int64_t used_mib, int64_t sm_percent)
{
    if (used_mib >= 0)
        put(o, "usedMiB", used_mib);
    if (sm_percent >= 0)
        put(o, "utilizationPercent", sm_percent);
}

/* `mib`: the promise; below 0: none that is known. */
static json_t *pod_json(const struct cluster_state *cs, const struct ledger_pod *pod,
                        int64_t mib)
{
    const struct cluster_state_pod *object = cluster_state_pod(cs, pod->uid);
    json_t *o = json_object();
    put_text(o, "namespace", pod->ns);
    put_text(o, "name", pod->name);
    put_text(o, "uid", pod->uid);
    if (mib >= 0)
        put(o, "mib", mib);
    put_flag(o, "wholeCard", pod->request->kind == REQUEST_CARDS);
    put_flag(o, "running", pod->running);
    if (object)
        put_flag(o, "assigned", span_eq(object->assigned, SPAN("true")));
    return o;
}

/* What uses the card without a promise. */
static void put_processes(const struct cluster_state *cs, const struct ledger_node *node,
                          const struct card *card, json_t *o)
{
    const struct cluster_state_scv *s = cluster_state_scv(cs, node->name);
    json_t *list = json_array();
    for (size_t i = 0; s && i < s->scv.n_processes; i++) {
        const struct scv_process *p = &s->scv.processes[i];
        if (!card->uuid.n || !span_eq(p->uuid, card->uuid) || !show_is_other_use(node, p))
            continue;
        json_t *one = json_object();
        put_text(one, "namespace", p->ns);
        put_text(one, "pod", p->pod);
        put_text(one, "container", p->container);
        put_text(one, "name", p->name);
        if (p->pid)
            put(one, "pid", p->pid);
        put_flag(one, "unmapped", p->unmapped);
        put_use(one, p->used_mib, p->sm_percent);
        json_array_append_new(list, one);
    }
    if (json_array_size(list))
        json_object_set(o, "processes", list);
    json_decref(list);
}

static json_t *card_json(const struct cluster_state *cs, const struct ledger_node *node,
                         const struct card *card, const struct ledger_pod **pods,
                         size_t n)
{
    const struct scv_card *scv = scv_card_of(cs, node->name, card->index);
    json_t *o = json_object(), *list = json_array();
    put(o, "index", card->index);
    put_text(o, "uuid", card->uuid);
    put_text(o, "model", card->model);
    put_text(o, "health", span_of(show_health(card->state)));
    put(o, "totalMiB", card->total_mib);
    put(o, "promisedMiB", card->promised_mib);
    if (card->core_promised)
        put(o, "promisedComputePercent", card->core_promised);
    if (card->used_mib >= 0)
        put(o, "usedMiB", card->used_mib);
    if (card->withheld_mib)
        put(o, "withheldMiB", card->withheld_mib);
    if (card->overuse_mib)
        put(o, "overuseMiB", card->overuse_mib);
    put_flag(o, "usageComplete", card->use_known);
    put(o, "freeMiB", node->state == NODE_USABLE ? card->free_mib : 0);
    put_flag(o, "overcommitted", card->overcommitted);
    if (scv && scv->has_utilization)
        put(o, "utilizationPercent", scv->utilization);
    if (scv && scv->has_temperature)
        put(o, "temperatureCelsius", scv->temperature);
    for (size_t i = 0; i < n; i++) {
        int64_t mib = ledger_pod_mib(pods[i], card);
        struct ledger_use use;
        bool used = ledger_pod_use(node, pods[i], card, &use);
        if (mib < 0 && !used)
            continue;
        json_t *pod = pod_json(cs, pods[i], mib);
        uint32_t core = ledger_pod_core(pods[i], card);
        if (core)
            put(pod, "computePercent", core);
        if (used)
            put_use(pod, use.used_mib, use.sm_percent);
        json_array_append_new(list, pod);
    }
    json_object_set_new(o, "pods", list);
    put_processes(cs, node, card, o);
    return o;
}

/* Does the pod have a card in the ledger? */
static bool is_placed(const struct ledger_pod *pod)
{
    for (uint32_t k = 0; k < pod->node->n_cards; k++)
        if (ledger_pod_mib(pod, &pod->node->cards[k]) >= 0)
            return true;
    return pod->request->kind == REQUEST_DEVICES || pod->request->kind == REQUEST_NONE;
}

static void put_unplaced(const struct cluster_state *cs, json_t *o,
                         const struct ledger_pod **pods, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        int64_t mib = pods[i]->request->cards * pods[i]->request->mib_per_card;
        if (!is_placed(pods[i]))
            json_array_append_new(list, pod_json(cs, pods[i], mib));
    }
    if (json_array_size(list))
        json_object_set(o, "unplaced", list);
    json_decref(list);
}

static json_t *node_json(const struct cluster_state *cs, const struct show *show,
                         const struct ledger_node *node, struct arena *a)
{
    static const char *const sources[] = {
        [SOURCE_NONE] = "none", [SOURCE_SCV] = "scv", [SOURCE_CAPACITY] = "capacity"};
    const struct cluster_state_node *object = cluster_state_node(cs, node->name);
    const struct cluster_state_scv *scv = cluster_state_scv(cs, node->name);
    const struct cluster_state_heartbeat *heartbeat =
        cluster_state_heartbeat(cs, node->name);
    struct ledger_node_info info = ledger_node_info(node);
    cleanup_buf struct buf why = {0}, time = {0}, note = {0};
    const struct ledger_pod **pods;
    size_t n = list_pods(show, node, a, &pods);
    json_t *o = json_object(), *cards = json_array();
    put_text(o, "name", node->name);
    put_text(o, "address", object ? object->address : (struct span){0});
    put_text(o, "source", span_of(sources[node->source]));
    if (node->mode == NODE_MEMORY || node->mode == NODE_CARDS)
        put_text(o, "mode", node->mode == NODE_CARDS ? SPAN("card") : SPAN("memory"));
    put_flag(o, "schedulingDisabled", node->cordoned);
    show_state(&why, node);
    put_text(o, "reason", buf_span(&why));
    if (heartbeat)
        put_text(o, "heartbeat", heartbeat->renewed);
    cluster_state_note_heartbeat(&note, cs, node);
    put_text(o, "heartbeatNote", buf_span(&note));
    if (info.has_sample)
        clock_format_s(&time, info.sample_s);
    put_text(o, "measured", buf_span(&time));
    if (scv) {
        put_text(o, "driverVersion", scv->scv.driver_version);
        put_text(o, "cudaVersion", scv->scv.cuda_version);
    }
    if (node->unknown_listed_card >= 0)
        put(o, "unknownCard", node->unknown_listed_card);
    if (node->claimed)
        put(o, "claimedCards", node->claimed);
    for (uint32_t i = 0; i < node->n_cards; i++)
        json_array_append_new(cards, card_json(cs, node, &node->cards[i], pods, n));
    json_object_set_new(o, "cards", cards);
    put_unplaced(cs, o, pods, n);
    return o;
}

static json_t *pending_json(const struct ledger *l, const struct ledger_pod *pod)
{
    cleanup_buf struct buf request = {0};
    json_t *o = json_object();
    put_text(o, "namespace", pod->ns);
    put_text(o, "name", pod->name);
    put_text(o, "uid", pod->uid);
    put(o, "priority", pod->priority);
    if (pod->nomination)
        put_text(o, "nominatedNode", pod->nomination->node->name);
    request_write(&request, pod->request, ledger_settings(l)->unit_mib);
    if (pod->invalid_reason)
        put_text(o, "error", span_of(pod->invalid_reason));
    else
        put_text(o, "request", buf_span(&request));
    return o;
}

static json_t *show_json(const struct cluster_state *cs, const struct show *show)
{
    const struct ledger *l = cluster_state_ledger(cs);
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf unit = {0};
    const struct ledger_node **nodes;
    const struct ledger_pod **pods;
    size_t n = show_nodes(l, show->node, &a, &nodes);
    if (show->node.n && !n)
        return NULL;
    json_t *o = json_object(), *list = json_array(), *pending = json_array();
    quantity_write_unit(&unit, ledger_settings(l)->unit_mib);
    put_text(o, "unit", buf_span(&unit));
    put(o, "unitMiB", ledger_settings(l)->unit_mib);
    put_flag(o, "unitAssumed", show->unit_assumed);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, node_json(cs, show, nodes[i], &a));
    json_object_set_new(o, "nodes", list);
    n = show->node.n ? 0 : show_pending(l, &a, &pods);
    for (size_t i = 0; i < n; i++)
        if (!show->ns.n || span_eq(pods[i]->ns, show->ns))
            json_array_append_new(pending, pending_json(l, pods[i]));
    if (show->node.n)
        json_decref(pending);
    else
        json_object_set_new(o, "pendingPods", pending);
    return o;
}

static int add_bytes(const char *p, size_t n, void *out)
{
    buf_add(out, p, n);
    return 0;
}

static void indent(struct buf *out, int depth)
{
    for (int i = 0; i < depth; i++)
        buf_adds(out, "  ");
}

/* A JSON string is valid YAML; but YAML also requires C1 control characters to be
 * escaped, which could control a terminal. */
static void yaml_string(struct buf *out, const json_t *j)
{
    const char *p = json_string_value(j);
    size_t n = json_string_length(j);
    buf_addc(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] < 0xa0)
            buf_printf(out, "\\u%04x", (unsigned char)p[++i]);
        else if (c < ' ' || c == 0x7f)
            buf_printf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else
            buf_addc(out, (char)c);
    }
    buf_addc(out, '"');
}

static void yaml_scalar(struct buf *out, const json_t *j)
{
    if (json_is_string(j))
        yaml_string(out, j);
    else
        json_dump_callback(j, add_bytes, out, JSON_ENCODE_ANY | JSON_COMPACT);
    buf_addc(out, '\n');
}

static void yaml_value(struct buf *out, const json_t *j, int depth);

/* `first`: "- " has been written before the first key. */
static void yaml_object(struct buf *out, const json_t *j, int depth, bool first)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)j, key, value)
    {
        if (!first)
            indent(out, depth);
        first = false;
        buf_adds(out, key); /* our own keys: plain words */
        buf_addc(out, ':');
        yaml_value(out, value, depth);
    }
}

/* The value after a "key:" of that depth. */
static void yaml_value(struct buf *out, const json_t *j, int depth)
{
    size_t i;
    json_t *item;
    if (json_is_array(j) && json_array_size(j)) {
        buf_addc(out, '\n');
        json_array_foreach(j, i, item)
        {
            indent(out, depth);
            buf_adds(out, "- ");
            if (json_is_object(item)) {
                yaml_object(out, item, depth + 1, true);
                continue;
            }
            yaml_scalar(out, item);
        }
    } else if (json_is_object(j) && json_object_size(j)) {
        buf_addc(out, '\n');
        yaml_object(out, j, depth + 1, false);
    } else {
        buf_addc(out, ' ');
        yaml_scalar(out, j);
    }
}

void show_dump(struct buf *out, const json_t *j, bool yaml)
{
    if (yaml) {
        yaml_object(out, j, 0, false);
        return;
    }
    json_dump_callback(j, add_bytes, out, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    buf_addc(out, '\n');
}

bool show_write(struct buf *out, const struct cluster_state *cs, const struct show *show)
{
    if (show->format == SHOW_TABLE || show->format == SHOW_WIDE)
        return show_table(out, cs, show);
    json_t *j = show_json(cs, show);
    if (!j)
        return false;
    show_dump(out, j, show->format == SHOW_YAML);
    json_decref(j);
    return true;
}
