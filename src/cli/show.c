/* SPDX-License-Identifier: Apache-2.0 */

/* A cluster_state as tables and as JSON. */

#include "cli/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"
#include "domain/diagnosis.h"
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

struct show_text show_amount(int64_t mib, int64_t unit)
{
    struct show_text text = {"-"};
    int64_t tenths = mib / unit * 10 + mib % unit * 10 / unit;
    if (mib >= 0 && mib % unit == 0)
        snprintf(text.s, sizeof text.s, "%" PRId64, mib / unit);
    else if (mib >= 0)
        snprintf(text.s, sizeof text.s, "%" PRId64 ".%" PRId64, tenths / 10, tenths % 10);
    return text;
}

struct show_text show_units(int64_t mib, int64_t unit)
{
    cleanup_buf struct buf name = {0};
    struct show_text text;
    quantity_write_unit(&name, unit);
    snprintf(text.s, sizeof text.s, "%s %s", show_amount(mib, unit).s, name.p);
    return text;
}

const char *show_plural(size_t n)
{
    return n == 1 ? "" : "s";
}

const struct ledger_pod *show_find_pod(const struct ledger_pod *first, struct span ns,
                                       struct span name)
{
    while (first && !(span_eq(first->ns, ns) && span_eq(first->name, name)))
        first = first->next;
    return first;
}

void show_enforced(struct buf *out, uint8_t bits)
{
    if (bits == SCV_ISOLATION_KNOWN)
        buf_adds(out, "nobody");
    else if (bits & SCV_ISOLATION_KNOWN)
        scv_isolation_add(out, bits, ",");
}

/* Whether the item of the node's processList is shown for itself: not if it is a container
 * of a pod that the ledger has on the node, because the pod's row has its use. */
static bool is_other_use(const struct ledger_node *node, const struct scv_process *p)
{
    return p->pid || !show_find_pod(node->pods, p->ns, p->pod);
}

static const struct scv_card *scv_card_of(const struct cluster_state *cs,
                                          struct span node, int32_t index)
{
    const struct cluster_state_scv *s = cluster_state_find(cs, CORE_SCVS, node);
    for (size_t i = 0; s && i < s->scv.n_cards; i++)
        if (s->scv.cards[i].id == index)
            return &s->scv.cards[i];
    return NULL;
}

/* A promise, and measured use; -1: none, or unknown. */
struct share {
    int64_t mib;
    struct ledger_use use;
};
#define NO_USE ((struct ledger_use){.used_mib = -1, .sm_percent = -1})

/* False: the pod neither has a promise of the card nor is known to use it. */
static bool share_of(const struct ledger_node *node, const struct ledger_pod *pod,
                     const struct card *card, struct share *share)
{
    share->mib = ledger_pod_mib(pod, card);
    if (ledger_pod_use(node, pod, card, &share->use))
        return true;
    share->use = NO_USE;
    return share->mib >= 0;
}

/* What the pod uses of the card without its limit; -1: nothing. */
static int64_t unlimited_of(const struct page *p, const struct ledger_node *node,
                            const struct ledger_pod *pod, const struct card *card)
{
    const struct cluster_state_scv *s = cluster_state_find(p->cs, CORE_SCVS, node->name);
    int64_t mib = 0;
    for (size_t i = 0; s && i < s->scv.n_held; i++) {
        const struct scv_held *held = &s->scv.held[i];
        for (size_t k = 0; k < held->n_uses; k++)
            if (span_eq(held->pod, pod->name) && span_eq(held->ns, pod->ns) &&
                span_eq(held->uses[k].uuid, card->uuid) &&
                held->uses[k].unlimited_mib > 0)
                mib += held->uses[k].unlimited_mib;
    }
    for (size_t i = 0; s && i < s->scv.n_processes; i++) {
        const struct scv_process *one = &s->scv.processes[i];
        if (span_eq(one->pod, pod->name) && span_eq(one->ns, pod->ns) &&
            span_eq(one->uuid, card->uuid) && one->unlimited_mib > 0)
            mib += one->unlimited_mib;
    }
    return mib ? mib : -1;
}

static void write_page(struct page *p, struct buf *out)
{
    table_write(&p->table, out);
    table_fini(&p->table);
}

/* "37%"; "-" if below 0. */
static struct show_text measure(int64_t value, const char *suffix)
{
    struct show_text text = {"-"};
    if (value >= 0)
        snprintf(text.s, sizeof text.s, "%" PRId64 "%s", value, suffix);
    return text;
}

static void add_measure(struct page *p, int64_t value, const char *suffix)
{
    table_cell(&p->table, PLAIN, "%s", measure(value, suffix).s);
}

static void add_amount(struct page *p, enum color color, int64_t mib)
{
    table_cell(&p->table, color, "%s", show_amount(mib, p->unit).s);
}

/* `card` NULL: the pod's card is unknown. */
static void add_pod_row(struct page *p, const struct ledger_node *node,
                        const struct ledger_pod *pod, const struct card *card,
                        const struct share *share)
{
    const struct cluster_state_pod *object =
        cluster_state_find(p->cs, CORE_PODS, pod->uid);
    bool assigned = object && span_eq(object->assigned, SPAN("true"));
    uint32_t core = card ? ledger_pod_core(pod, card) : 0;
    const struct ledger_use *use = &share->use;
    cleanup_buf struct buf enforced = {0};
    struct table *t = &p->table;
    table_span(t, PLAIN, node->name);
    table_cell(t, card ? PLAIN : YELLOW, "%s",
               card ? measure(card->index, "").s : "none");
    table_span(t, PLAIN, pod->ns);
    table_span(t, PLAIN, pod->name);
    add_amount(p, PLAIN, share->mib);
    add_amount(p, share->mib >= 0 && use->used_mib > share->mib ? RED : PLAIN,
               use->used_mib);
    if (core)
        table_cell(t, use->sm_percent > core ? YELLOW : PLAIN, "%s/%u%%",
                   measure(use->sm_percent, "%").s, core);
    else
        add_measure(p, use->sm_percent, "%");
    int64_t unlimited_mib = card ? unlimited_of(p, node, pod, card) : -1;
    add_amount(p, unlimited_mib > 0 ? RED : PLAIN, unlimited_mib);
    show_enforced(&enforced, use->enforced_by);
    table_span(t, PLAIN, enforced.n ? buf_span(&enforced) : SPAN("-"));
    table_cell(t, PLAIN, "%s",
               pod->terminating ? "terminating"
               : pod->running   ? "running"
               : assigned       ? "assigned"
                                : "bound");
    table_end(t);
}

/* What each pod was promised of each card, and uses of it now. */
static void add_pods(struct page *p, struct buf *out, const struct ledger_node **nodes,
                     size_t n)
{
    table_header(&p->table, "NODE\tGPU\tNAMESPACE\tPOD\tPROMISED\tUSED\tSM\tUNLIMITED\t"
                            "ENFORCED BY\tSTATE");
    for (size_t i = 0; i < n; i++) {
        const struct ledger_pod **pods;
        size_t n_pods = view_sort_pods(nodes[i]->pods, &p->arena, &pods);
        for (size_t j = 0; j < n_pods; j++) {
            struct share share;
            bool any = false;
            if (p->show->ns.n && !span_eq(pods[j]->ns, p->show->ns))
                continue;
            ARRAY_EACH_ITEM(const struct card, card, nodes[i]->cards, nodes[i]->n_cards)
            {
                if (!share_of(nodes[i], pods[j], card, &share))
                    continue;
                add_pod_row(p, nodes[i], pods[j], card, &share);
                any = true;
            }
            if (!any && pods[j]->request->kind != REQUEST_NONE)
                add_pod_row(p, nodes[i], pods[j], NULL, &(struct share){-1, NO_USE});
        }
    }
    write_page(p, out);
}

static void add_pending(struct page *p, struct buf *out)
{
    const struct ledger_pod **pods;
    const struct ledger *l = cluster_state_ledger(p->cs);
    size_t n = view_sort_pods(ledger_first_pending(l), &p->arena, &pods);
    if (!n || p->show->node.n)
        return;
    buf_addc(out, '\n');
    table_header(&p->table, "NAMESPACE\tPENDING POD\tREQUEST\tPRIORITY");
    for (size_t i = 0; i < n; i++) {
        cleanup_buf struct buf request = {0};
        if (pods[i]->invalid_reason)
            buf_adds(&request, pods[i]->invalid_reason);
        else
            request_write(&request, pods[i]->request, p->unit);
        table_span(&p->table, PLAIN, pods[i]->ns);
        table_span(&p->table, PLAIN, pods[i]->name);
        table_span(&p->table, pods[i]->invalid_reason ? RED : PLAIN, buf_span(&request));
        table_cell(&p->table, PLAIN, "%" PRId32, pods[i]->priority);
        table_end(&p->table);
    }
    write_page(p, out);
}

static void add_other_use(struct page *p, const struct ledger_node *node,
                          const struct scv_process *use)
{
    int32_t index = -1;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (span_eq(node->cards[i].uuid, use->uuid))
            index = node->cards[i].index;
    table_span(&p->table, PLAIN, node->name);
    add_measure(p, index, "");
    if (use->pid)
        table_cell(&p->table, YELLOW, "%.*s%s", SPAN_ARG(use->name),
                   use->unmapped ? ", not known whether in a pod"
                                 : ", outside Kubernetes");
    else
        table_cell(&p->table, YELLOW, "%.*spod %.*s/%.*s", SPAN_ARG(use->name),
                   SPAN_ARG(use->ns), SPAN_ARG(use->pod));
    add_measure(p, use->pid ?: -1, "");
    add_measure(p, use->sm_percent, "%");
    add_amount(p, PLAIN, use->used_mib);
    table_end(&p->table);
}

/* What uses cards without a promise; `usage` has processes that may be in any pod. */
static void add_other_uses(struct page *p, struct buf *out,
                           const struct ledger_node **nodes, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const struct cluster_state_scv *s =
            cluster_state_find(p->cs, CORE_SCVS, nodes[i]->name);
        for (size_t k = 0; s && k < s->scv.n_processes; k++) {
            if (!is_other_use(nodes[i], &s->scv.processes[k]) ||
                (p->show->usage && !s->scv.processes[k].unmapped))
                continue;
            if (!any)
                table_header(&p->table, "NODE\tGPU\tOTHER USE\tPID\tSM\tUSED");
            any = true;
            add_other_use(p, nodes[i], &s->scv.processes[k]);
        }
    }
    if (any)
        buf_addc(out, '\n');
    write_page(p, out);
}

static void add_wide(struct page *p, const struct ledger_node *node,
                     const struct card *card)
{
    const struct scv_card *scv = scv_card_of(p->cs, node->name, card->index);
    const struct cluster_state_node *object =
        cluster_state_find(p->cs, CORE_NODES, node->name);
    struct ledger_node_info info = ledger_node_info(node);
    struct table *t = &p->table;
    struct span none = SPAN("-");
    int64_t age = -1;
    if (info.has_sample)
        age = p->show->now_s > info.sample_s ? p->show->now_s - info.sample_s : 0;
    add_amount(p, card->withheld_mib ? YELLOW : PLAIN, card->withheld_mib);
    add_amount(p, card->overuse_mib ? RED : PLAIN,
               card->use_known ? card->overuse_mib : -1);
    add_measure(p, scv && scv->has_utilization ? scv->utilization : -1, "%");
    add_measure(p, scv && scv->has_temperature ? scv->temperature : -1, "C");
    table_span(t, PLAIN, object && object->address.n ? object->address : none);
    table_cell(t, PLAIN, "%s",
               node->source == SOURCE_SCV        ? "scv"
               : node->source == SOURCE_CAPACITY ? "capacity"
                                                 : "none");
    if (age < 120)
        add_measure(p, age, "s");
    else if (age < 120 * 60)
        add_measure(p, age / 60, "m");
    else
        add_measure(p, age / 3600, "h");
    bool instance = scv && scv->parent_uuid.n;
    table_cell(t, PLAIN, "%.*s%s%.*s", SPAN_ARG(card->uuid.n ? card->uuid : none),
               instance ? " of " : "",
               SPAN_ARG(instance ? scv->parent_uuid : (struct span){0}));
}

/* Shares of compute are in the table of cards where pods or columns are asked for. */
static void add_cards(struct page *p, const struct ledger_node **nodes, size_t n)
{
    bool wide = p->show->format == SHOW_WIDE, compute = wide || p->show->details;
    cleanup_buf struct buf unit = {0}, header = {0};
    struct table *t = &p->table;
    quantity_write_unit(&unit, p->unit);
    buf_printf(
        &header, "NODE\tGPU\tMODEL\tHEALTH\tPROMISED/TOTAL(%s)\tUSED\tFREE%s\tPODS%s",
        unit.p, compute ? "\tCOMPUTE" : "",
        wide ? "\tWITHHELD\tOVERUSE\tUTIL\tTEMP\tADDRESS\tSOURCE\tMEASURED\tUUID" : "");
    table_header(t, header.p);
    for (size_t i = 0; i < n; i++) {
        const struct ledger_node *node = nodes[i];
        ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
        {
            bool full = card->total_mib > 0 && card->promised_mib >= card->total_mib;
            bool over = card->compute_promised > REQUEST_CORE;
            table_span(t, PLAIN, node->name);
            table_cell(t, PLAIN, "%" PRId32, card->index);
            table_span(t, PLAIN, card->kind->model.n ? card->kind->model : SPAN("-"));
            table_cell(t,
                       card->state != CARD_AVAILABLE ? RED
                       : node->cordoned              ? YELLOW
                                                     : GREEN,
                       "%s%s", view_health(card->state),
                       node->cordoned ? "," SHOW_CORDONED : "");
            table_cell(t,
                       card->overcommitted ? RED
                       : full              ? YELLOW
                                           : PLAIN,
                       "%s/%" PRId64 "%s", show_amount(card->promised_mib, p->unit).s,
                       card->total_mib / p->unit, card->overcommitted ? "!" : "");
            add_amount(p, PLAIN, card->used_mib);
            table_cell(t, PLAIN, "%" PRId64,
                       node->state == NODE_USABLE ? card->free_mib / p->unit : 0);
            if (compute && !node->has_core && !card->compute_promised)
                table_cell(t, PLAIN, "-");
            else if (compute) /* pods with whole cards have all of it */
                table_cell(t, over ? RED : PLAIN, "%d%%%s",
                           card->whole && !over ? REQUEST_CORE : card->compute_promised,
                           over ? "!" : "");
            table_cell(t, PLAIN, "%" PRIu32, card->pods);
            if (wide)
                add_wide(p, node, card);
            table_end(t);
        }
    }
}

/* What connects the cards, as `nvidia-smi topo -m` prints it; `?`: no word of it. */
static void add_topology(struct page *p, struct buf *out, const struct ledger_node *node)
{
    struct table *t = &p->table;
    buf_addc(out, '\n');
    table_span(t, BOLD, node->name);
    for (uint32_t i = 0; i < node->n_cards; i++)
        table_cell(t, BOLD, "GPU%" PRId32, node->cards[i].index);
    table_span(t, BOLD, SPAN("NUMA NODE"));
    table_end(t);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct scv_card *scv = scv_card_of(p->cs, node->name, node->cards[i].index);
        struct span row = scv ? scv->links : (struct span){0};
        table_cell(t, BOLD, "GPU%" PRId32, node->cards[i].index);
        for (uint32_t k = 0; k < node->n_cards; k++) {
            struct span word = span_cut(&row, ' ');
            table_span(t, PLAIN,
                       i == k             ? SPAN("X")
                       : link_width(word) ? word
                                          : SPAN("?"));
        }
        add_measure(p, scv && scv->has_numa_node ? scv->numa_node : -1, "");
        table_end(t);
    }
    write_page(p, out);
    if (!node->links && node->n_cards > 1)
        table_line(out, "! %.*s: unknown connections, so none of them counts",
                   SPAN_ARG(node->name));
}

static void add_sums(struct page *p, struct buf *out, const struct ledger_node **nodes,
                     size_t n)
{
    int64_t total = 0, promised = 0, used = 0, free = 0, cordoned = 0;
    size_t cards = 0, healthy = 0, measured = 0;
    size_t pending =
        p->show->node.n ? 0 : ledger_totals(cluster_state_ledger(p->cs)).pending;
    for (size_t i = 0; i < n; i++)
        ARRAY_EACH_ITEM(const struct card, card, nodes[i]->cards, nodes[i]->n_cards)
        {
            int64_t left = nodes[i]->state == NODE_USABLE ? card->free_mib : 0;
            cards++;
            healthy += card->state == CARD_AVAILABLE;
            total += card->total_mib;
            promised += card->promised_mib;
            used += card->used_mib > 0 ? card->used_mib : 0;
            measured += card->used_mib >= 0;
            free += left;
            cordoned += nodes[i]->cordoned ? left : 0;
        }
    buf_printf(out, "\n%s of %s promised (%" PRId64 "%%), %s free",
               show_amount(promised, p->unit).s, show_units(total, p->unit).s,
               total ? promised * 100 / total : 0, show_amount(free, p->unit).s);
    if (cordoned)
        buf_printf(out, " (%s on cordoned nodes)", show_amount(cordoned, p->unit).s);
    if (measured)
        buf_printf(out, ", %s in use", show_amount(used, p->unit).s);
    buf_printf(out, "; %zu card%s (%zu healthy) on %zu node%s", cards, show_plural(cards),
               healthy, n, show_plural(n));
    if (pending)
        buf_printf(out, "; %zu pending pod%s", pending, show_plural(pending));
    buf_addc(out, '\n');
}

struct marks {
    struct buf *out;
    const struct ledger_node *node;
};

/* What disagrees about the node itself. The tables show its cards and pods; its memory says
 * enough of what it offers. */
static void add_mark(void *ctx, const struct disagreement *d)
{
    const struct marks *m = ctx;
    cleanup_buf struct buf text = {0};
    if (d->card || (d->resource && strcmp(d->resource, KEY_GPU_COUNT) == 0))
        return;
    disagreement_write(&text, m->node, d);
    table_line(m->out, "! %.*s: %s", SPAN_ARG(m->node->name), text.p);
}

/* Problems of a node, one line each. */
static void add_notes(struct buf *out, const struct cluster_state *cs,
                      const struct ledger_node *node)
{
    cleanup_buf struct buf why = {0}, note = {0};
    reason_add_unusable(&why, node);
    cluster_state_note_heartbeat(&note, cs, node);
    if (why.n)
        table_line(out, "! %.*s%s: %s", SPAN_ARG(node->name),
                   node->cordoned ? " (" SHOW_CORDONED ")" : "", why.p);
    if (note.n)
        table_line(out, "! %.*s: %s", SPAN_ARG(node->name), note.p);
    diagnosis_node(cluster_state_ledger(cs), node, add_mark, &(struct marks){out, node});
}

static bool show_table(struct buf *out, const struct cluster_state *cs,
                       const struct show *show)
{
    struct page p = {.cs = cs,
                     .show = show,
                     .unit = ledger_settings(cluster_state_ledger(cs))->unit_mib,
                     .table.colors = show->colors};
    const struct ledger_node **nodes;
    size_t n = show_nodes(cluster_state_ledger(cs), show->node, &p.arena, &nodes);
    bool found = n || !show->node.n, any_pods = false;
    if (show->usage) {
        add_pods(&p, out, nodes, n);
        if (!show->ns.n)
            add_other_uses(&p, out, nodes, n);
        buf_adds(out, "in units of ");
        quantity_write_unit(out, p.unit);
        buf_addc(out, '\n');
    } else if (found) {
        add_cards(&p, nodes, n);
        write_page(&p, out);
        for (size_t i = 0; i < n; i++) {
            add_notes(out, cs, nodes[i]);
            any_pods |= show->details && nodes[i]->pods;
            cleanup_buf struct buf words = {0};
            scv_isolation_add(&words, nodes[i]->isolation, ", ");
            if (show->details && nodes[i]->isolation & SCV_ISOLATION_KNOWN)
                table_line(out, "%.*s can enforce memory by: %s",
                           SPAN_ARG(nodes[i]->name), words.p);
        }
        if (any_pods) {
            buf_addc(out, '\n');
            add_pods(&p, out, nodes, n);
        }
        for (size_t i = 0; show->topology && i < n; i++)
            if (nodes[i]->n_cards)
                add_topology(&p, out, nodes[i]);
        if (show->details) {
            add_other_uses(&p, out, nodes, n);
            add_pending(&p, out);
        }
        add_sums(&p, out, nodes, n);
    }
    arena_fini(&p.arena);
    return found;
}

/*
 * JSON: the extender's inspect, and what only the API objects say.
 */

json_t *show_json_text(struct span text)
{
    json_t *s = json_stringn(text.n ? text.p : "", text.n);
    return s ? s : json_string("?"); /* invalid UTF-8 */
}

json_t *show_json_pod(const struct ledger_pod *pod)
{
    return json_pack("{s:o,s:o,s:o}", "namespace", show_json_text(pod->ns), "name",
                     show_json_text(pod->name), "uid", show_json_text(pod->uid));
}

/* Each leaves out an unknown or false value. */
static void put_text(json_t *o, const char *key, struct span text)
{
    if (text.n)
        json_object_set_new(o, key, show_json_text(text));
}

static void put_amount(json_t *o, const char *key, int64_t number)
{
    if (number >= 0)
        json_object_set_new(o, key, json_integer(number));
}

static void put_flag(json_t *o, const char *key, bool value)
{
    if (value)
        json_object_set_new(o, key, json_true());
}

/* Completes the pods with promises, and adds those that use the card without one. */
static void complete_pods(json_t *list, const struct cluster_state *cs,
                          const struct ledger_node *node, const struct card *card)
{
    json_t *o;
    size_t i;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        struct share share;
        if (ledger_pod_mib(pod, card) >= 0 || !share_of(node, pod, card, &share))
            continue;
        o = show_json_pod(pod);
        put_amount(o, "usedMiB", share.use.used_mib);
        put_amount(o, "utilizationPercent", share.use.sm_percent);
        json_array_append_new(list, o);
    }
    json_array_foreach(list, i, o)
    {
        struct span uid = jpath_text(o, "uid");
        const struct ledger_pod *pod = ledger_pod_find(cluster_state_ledger(cs), uid);
        const struct cluster_state_pod *object = cluster_state_find(cs, CORE_PODS, uid);
        put_flag(o, "running", pod && pod->running);
        put_flag(o, "terminating", pod && pod->terminating);
        put_flag(o, "assigned", object && span_eq(object->assigned, SPAN("true")));
    }
}

static void complete_card(json_t *o, const struct cluster_state *cs,
                          const struct ledger_node *node, const struct card *card)
{
    const struct scv_card *scv = scv_card_of(cs, node->name, card->index);
    const struct cluster_state_scv *s = cluster_state_find(cs, CORE_SCVS, node->name);
    json_auto_t *list = json_array();
    if (node->state != NODE_USABLE)
        put_amount(o, "freeMiB", 0);
    if (scv && scv->has_utilization)
        put_amount(o, "utilizationPercent", scv->utilization);
    if (scv && scv->has_temperature)
        put_amount(o, "temperatureCelsius", scv->temperature);
    put_text(o, "parentUUID", scv ? scv->parent_uuid : (struct span){0});
    complete_pods(json_object_get(o, "pods"), cs, node, card);
    for (size_t i = 0; s && i < s->scv.n_processes; i++) {
        const struct scv_process *p = &s->scv.processes[i];
        if (!card->uuid.n || !span_eq(p->uuid, card->uuid) || !is_other_use(node, p))
            continue;
        json_t *one = json_object();
        put_text(one, "namespace", p->ns);
        put_text(one, "pod", p->pod);
        put_text(one, "container", p->container);
        put_text(one, "name", p->name);
        put_amount(one, "pid", p->pid ? p->pid : -1);
        put_flag(one, "unmapped", p->unmapped);
        put_amount(one, "usedMiB", p->used_mib);
        put_amount(one, "utilizationPercent", p->sm_percent);
        json_array_append_new(list, one);
    }
    if (json_array_size(list))
        json_object_set(o, "processes", list);
}

static void complete_node(json_t *o, const struct cluster_state *cs,
                          const struct ledger_node *node)
{
    const struct cluster_state_node *object =
        cluster_state_find(cs, CORE_NODES, node->name);
    const struct cluster_state_scv *scv = cluster_state_find(cs, CORE_SCVS, node->name);
    const struct cluster_state_heartbeat *h =
        cluster_state_find(cs, CORE_LEASES, node->name);
    const struct ledger_node_info info = ledger_node_info(node);
    cleanup_buf struct buf time = {0}, note = {0};
    put_text(o, "address", object ? object->address : SPAN(""));
    put_text(o, "heartbeat", h ? h->renewed : SPAN(""));
    cluster_state_note_heartbeat(&note, cs, node);
    put_text(o, "heartbeatNote", buf_span(&note));
    if (info.has_sample)
        clock_format_s(&time, info.sample_s);
    put_text(o, "measured", buf_span(&time));
    put_text(o, "driverVersion", scv ? scv->scv.driver_version : SPAN(""));
    put_text(o, "cudaVersion", scv ? scv->scv.cuda_version : SPAN(""));
    for (uint32_t i = 0; i < node->n_cards; i++)
        complete_card(json_array_get(json_object_get(o, "devs"), i), cs, node,
                      &node->cards[i]);
}

static void keep_namespace(json_t *pods, struct span ns)
{
    for (size_t i = json_array_size(pods); ns.n && i-- > 0;) {
        if (!span_eq(jpath_text(json_array_get(pods, i), "namespace"), ns))
            json_array_remove(pods, i);
    }
}

/* NULL: no such node. */
static json_t *show_json(const struct cluster_state *cs, const struct show *show)
{
    const struct ledger *l = cluster_state_ledger(cs);
    const struct view_source source = cluster_state_source(cs);
    cleanup_buf struct buf text = {0};
    json_t *dev;
    size_t k;
    if (!show->node.n)
        view_inspect_all(&source, &text);
    else if (!view_inspect_node(&source, show->node, &text))
        return NULL;
    json_t *all = json_loadb(text.p, text.n, JSON_ALLOW_NUL, NULL);
    json_t *nodes = json_object_get(all, "nodes");
    put_amount(all, "unitMiB", ledger_settings(l)->unit_mib);
    keep_namespace(json_object_get(all, "pendingPods"), show->ns);
    for (size_t i = json_array_size(nodes); i-- > 0;) {
        json_t *o = json_array_get(nodes, i);
        const struct ledger_node *node = ledger_node_find(l, jpath_text(o, "name"));
        if (!node || (!show->node.n && !is_relevant(node))) {
            json_array_remove(nodes, i);
            continue;
        }
        complete_node(o, cs, node);
        keep_namespace(json_object_get(o, "unplaced"), show->ns);
        json_array_foreach(json_object_get(o, "devs"), k, dev)
            keep_namespace(json_object_get(dev, "pods"), show->ns);
    }
    return all;
}

static int add_bytes(const char *p, size_t n, void *out)
{
    buf_add(out, p, n);
    return 0;
}

void show_dump(struct buf *out, json_t *j)
{
    json_dump_callback(j, add_bytes, out, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    buf_addc(out, '\n');
    json_decref(j);
}

bool show_write(struct buf *out, const struct cluster_state *cs, const struct show *show)
{
    if (show->format != SHOW_JSON)
        return show_table(out, cs, show);
    json_t *j = show_json(cs, show);
    if (j)
        show_dump(out, j);
    return j != NULL;
}
