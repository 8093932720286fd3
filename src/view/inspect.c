/* SPDX-License-Identifier: Apache-2.0 */
#include "view/inspect_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "domain/quantity.h"
#include "placement/reason.h"

void view_inspect_comma(struct buf *out)
{
    char last = out->n ? out->p[out->n - 1] : '{';
    if (last != '{' && last != '[')
        buf_addc(out, ',');
}

void view_inspect_key(struct buf *out, const char *name)
{
    view_inspect_comma(out);
    buf_addc(out, '"');
    buf_adds(out, name);
    buf_adds(out, "\":");
}

void view_inspect_number(struct buf *out, const char *name, int64_t value)
{
    view_inspect_key(out, name);
    buf_add_i64(out, value);
}

void view_inspect_string(struct buf *out, const char *name, struct span value)
{
    if (!value.n)
        return;
    view_inspect_key(out, name);
    buf_add_json(out, value);
}

void view_inspect_bool(struct buf *out, const char *name, bool value)
{
    view_inspect_key(out, name);
    buf_adds(out, value ? "true" : "false");
}

static int by_name(const void *a, const void *b)
{
    const struct ledger_pod *x = *(const struct ledger_pod *const *)a;
    const struct ledger_pod *y = *(const struct ledger_pod *const *)b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

struct pods {
    const struct view_scope *scope;
    const struct ledger_pod **items;
    size_t n, cap;
};

static void pods_add(struct pods *pods, const struct ledger_pod *pod)
{
    MEM_GROW(pods->items, pods->cap, pods->n + 1);
    pods->items[pods->n++] = pod;
}

static void pods_sort(struct pods *pods)
{
    if (pods->n)
        qsort(pods->items, pods->n, sizeof *pods->items, by_name);
}

/* `use`: what it uses of the card; NULL: unknown. `core`: percent of the compute. */
static void write_pod(struct buf *out, const struct pods *pods,
                      const struct ledger_pod *pod, int64_t mib, int64_t unit,
                      const struct ledger_use *use, uint32_t core)
{
    bool shown = view_scope_shows(pods->scope, pod->ns);
    view_inspect_comma(out);
    buf_addc(out, '{');
    if (shown) {
        view_inspect_string(out, "name", pod->name);
        view_inspect_string(out, "namespace", pod->ns);
    }
    view_inspect_number(out, "usedGPU", mib / unit);
    if (shown)
        view_inspect_string(out, "uid", pod->uid);
    else
        view_inspect_bool(out, "hidden", true);
    view_inspect_number(out, "mib", mib);
    if (pod->request->kind == REQUEST_CARDS)
        view_inspect_bool(out, "wholeCard", true);
    if (core)
        view_inspect_number(out, "computePercent", core);
    if (shown && use && use->used_mib >= 0)
        view_inspect_number(out, "usedMiB", use->used_mib);
    if (shown && use && use->sm_percent >= 0)
        view_inspect_number(out, "utilizationPercent", use->sm_percent);
    buf_addc(out, '}');
}

static const char *health(enum card_state out)
{
    static const char *const names[] = {[CARD_AVAILABLE] = "Healthy",
                                        [CARD_UNHEALTHY] = "Unhealthy",
                                        [CARD_LISTED] = "Excluded",
                                        [CARD_HELD] = "OtherPlugin",
                                        [CARD_DUPLICATE] = "DuplicateUUID"};
    return names[out];
}

/* What of the node's reservations is on the card. */
static void write_reservations(struct buf *out, const struct ledger_node *node,
                               const struct card *card, const struct view_scope *scope)
{
    view_inspect_number(out, "reservedMiB", card->reserved_mib);
    if (card->core_reserved)
        view_inspect_number(out, "reservedComputePercent", card->core_reserved);
    view_inspect_key(out, "reservations");
    buf_addc(out, '[');
    for (const struct ledger_reservation *r = node->reserved; r; r = r->next_here) {
        uint32_t i = 0;
        while (i < r->n_shares && r->shares[i].on != card)
            i++;
        if (i == r->n_shares)
            continue;
        view_inspect_comma(out);
        buf_addc(out, '{');
        if (view_scope_shows(scope, r->ns)) {
            view_inspect_string(out, "name", r->name);
            view_inspect_string(out, "namespace", r->ns);
            view_inspect_string(out, "uid", r->uid);
        } else {
            view_inspect_bool(out, "hidden", true);
        }
        view_inspect_number(out, "mib", r->whole ? card->total_mib : r->shares[i].mib);
        if (r->whole)
            view_inspect_bool(out, "wholeCard", true);
        if (r->core)
            view_inspect_number(out, "computePercent", r->core);
        buf_addc(out, '}');
    }
    buf_addc(out, ']');
}

static void write_card(struct buf *out, const struct ledger_node *node,
                       const struct card *card, const struct pods *pods, int64_t unit)
{
    view_inspect_comma(out);
    buf_addc(out, '{');
    view_inspect_number(out, "id", card->index);
    view_inspect_number(out, "totalGPU", card->total_mib / unit);
    view_inspect_number(out, "usedGPU", card->promised_mib / unit);
    view_inspect_key(out, "pods");
    buf_addc(out, '[');
    for (size_t i = 0; i < pods->n; i++) {
        int64_t mib = ledger_pod_mib(pods->items[i], card);
        struct ledger_use use;
        bool used = ledger_pod_use(node, pods->items[i], card, &use);
        if (mib >= 0)
            write_pod(out, pods, pods->items[i], mib, unit, used ? &use : NULL,
                      ledger_pod_core(pods->items[i], card));
    }
    buf_addc(out, ']');
    view_inspect_string(out, "uuid", card->uuid);
    view_inspect_string(out, "model", card->model);
    view_inspect_string(out, "health", span_of(health(card->state)));
    view_inspect_number(out, "totalMiB", card->total_mib);
    view_inspect_number(out, "promisedMiB", card->promised_mib);
    if (card->core_promised)
        view_inspect_number(out, "promisedComputePercent", card->core_promised);
    if (card->used_mib >= 0)
        view_inspect_number(out, "usedMiB", card->used_mib);
    if (card->withheld_mib)
        view_inspect_number(out, "withheldMiB", card->withheld_mib);
    if (card->overuse_mib)
        view_inspect_number(out, "overuseMiB", card->overuse_mib);
    if (card->use_known)
        view_inspect_bool(out, "usageComplete", true);
    if (card->reserved_mib)
        write_reservations(out, node, card, pods->scope);
    view_inspect_number(out, "freeMiB", card->free_mib);
    if (card->overcommitted)
        view_inspect_bool(out, "overcommitted", true);
    buf_addc(out, '}');
}

/* Promises on cards that the node does not have, and pods whose card is unknown. */
static void write_unplaced(struct buf *out, const struct pods *pods, int64_t unit)
{
    bool any = false;
    for (size_t i = 0; i < pods->n; i++) {
        const struct ledger_pod *pod = pods->items[i];
        const struct request *r = pod->request;
        int64_t mib = r->kind == REQUEST_MEMORY ? r->cards * r->mib_per_card : 0;
        if (pod->n_shares || r->kind == REQUEST_DEVICES || r->kind == REQUEST_NONE)
            mib = -1;
        for (uint32_t k = 0; k < pod->n_shares; k++)
            if (!pod->shares[k].on)
                mib = (mib < 0 ? 0 : mib) + pod->shares[k].mib;
        if (mib < 0)
            continue;
        if (!any) {
            view_inspect_key(out, "unplaced");
            buf_addc(out, '[');
        }
        any = true;
        write_pod(out, pods, pod, mib, unit, NULL, 0);
    }
    if (any)
        buf_addc(out, ']');
}

static const char *source(enum node_source source)
{
    return source == SOURCE_SCV ? "scv" : source == SOURCE_CAPACITY ? "capacity" : "none";
}

/* CPU, memory and pod slots; nothing for a node that does not state them. */
static void write_space(struct buf *out, const struct ledger_node *node)
{
    struct resources has = ledger_node_allocatable(node);
    struct resources used = ledger_node_requested(node);
    if (has.cpu_milli) {
        view_inspect_number(out, "cpuMilli", has.cpu_milli);
        view_inspect_number(out, "cpuRequestedMilli", used.cpu_milli);
    }
    if (has.memory) {
        view_inspect_number(out, "memoryBytes", has.memory);
        view_inspect_number(out, "memoryRequestedBytes", used.memory);
    }
    if (has.pods) {
        view_inspect_number(out, "podSlots", has.pods);
        view_inspect_number(out, "podSlotsTaken", used.pods);
    }
}

void view_inspect_write_node(const struct ledger *l, const struct ledger_node *node,
                             const struct view_scope *scope, struct buf *out)
{
    int64_t unit = ledger_settings(l)->unit_mib, total = 0, used = 0;
    cleanup_free const struct ledger_pod **items = NULL;
    struct pods pods = {.scope = scope};
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        pods_add(&pods, pod);
    items = pods.items;
    pods_sort(&pods);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        total += node->cards[i].total_mib / unit;
        used += node->cards[i].promised_mib / unit;
    }
    buf_addc(out, '{');
    view_inspect_string(out, "name", node->name);
    view_inspect_number(out, "totalGPU", total);
    view_inspect_number(out, "usedGPU", used);
    view_inspect_key(out, "devs");
    buf_addc(out, '[');
    for (uint32_t i = 0; i < node->n_cards; i++)
        write_card(out, node, &node->cards[i], &pods, unit);
    buf_addc(out, ']');
    view_inspect_string(out, "source", span_of(source(node->source)));
    write_unplaced(out, &pods, unit);
    if (node->n_cards)
        write_space(out, node);
    if (node->mode == NODE_MEMORY || node->mode == NODE_CARDS)
        view_inspect_string(out, "mode",
                            node->mode == NODE_CARDS ? SPAN("card") : SPAN("memory"));
    if (node->cordoned)
        view_inspect_bool(out, "schedulingDisabled", true);
    if (node->unknown_listed_card >= 0)
        view_inspect_number(out, "unknownCard", node->unknown_listed_card);
    if (node->claimed)
        view_inspect_number(out, "claimedCards", node->claimed);
    if (node->state != NODE_USABLE || node->mode == NODE_MODE_WRONG) {
        cleanup_buf struct buf why = {0};
        struct request any = {.kind = REQUEST_MEMORY, .cards = 1};
        reason_add(&why, node, &any, select_fit(node, &any));
        view_inspect_string(out, "reason", buf_span(&why));
    }
    if (node->state == NODE_STALE)
        view_inspect_number(out, "heartbeatAgeSeconds", node->stale_s);
    if (node->state == NODE_NO_GPU)
        view_inspect_bool(out, "noGPU", true);
    buf_addc(out, '}');
}

/* What view_source_each_node passes on. */
struct writer {
    const struct view_scope *scope;
    struct buf *out;
};

static void write_node(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    const struct writer *w = ctx;
    view_inspect_comma(w->out);
    view_inspect_write_node(l, node, w->scope, w->out);
}

bool view_inspect_node(const struct view_source *source, struct span name,
                       const struct view_scope *scope, struct buf *out)
{
    const struct ledger *l = core_ledger(source->read(source->ctx));
    const struct ledger_node *node = ledger_node_find(l, name);
    buf_adds(out, "{\"nodes\":[");
    if (node)
        view_inspect_write_node(l, node, scope, out);
    buf_addc(out, ']');
    if (!node)
        view_inspect_string(out, "error", SPAN("unknown node"));
    source->read_end(source->ctx);
    buf_addc(out, '}');
    return node != NULL;
}

/* The members of the cluster but for pendingPods. */
static void write_core(const struct core *core, bool observer, struct buf *out)
{
    struct err err = {0};
    struct core_time now = {clock_mono_ms(), clock_wall_ns()};
    const struct ledger *l = core_ledger(core);
    cleanup_buf struct buf unit = {0};
    quantity_write_unit(&unit, ledger_settings(l)->unit_mib);
    view_inspect_string(out, "unit", buf_span(&unit));
    if (observer) {
        view_inspect_bool(out, "observer", true);
    } else {
        view_inspect_bool(out, "leader", core_is_leader(core));
        view_inspect_string(out, "holder", core_lease_holder(core));
        view_inspect_number(out, "overcommits", (int64_t)core_overcommits(core));
        view_inspect_number(out, "bindsInFlight", (int64_t)core_binds_in_flight(core));
        view_inspect_number(out, "preemptAfterSeconds",
                            (core_preempt_after_ms(core) + 999) / 1000);
    }
    if (core_ready(core, now, &err))
        view_inspect_string(out, "error", span_of(err.msg));
}

void view_inspect_write_cluster(const struct view_source *source,
                                const struct view_scope *scope, struct buf *out)
{
    write_core(source->read(source->ctx), source->observer, out);
    source->read_end(source->ctx);
    view_inspect_pending(source, scope, out);
}

void view_inspect_state(const struct view_source *source, struct buf *out)
{
    const struct core *core = source->read(source->ctx);
    const struct ledger *l = core_ledger(core);
    buf_printf(out, "%llu %llu %llu ", (unsigned long long)ledger_generation(l),
               (unsigned long long)ledger_pending_generation(l),
               (unsigned long long)core_preempt_generation(core));
    write_core(core, source->observer, out);
    source->read_end(source->ctx);
}

void view_inspect_all(const struct view_source *source, const struct view_scope *scope,
                      struct buf *out)
{
    struct writer w = {scope, out};
    buf_adds(out, "{\"nodes\":[");
    view_source_each_node(source, write_node, &w);
    buf_addc(out, ']');
    view_inspect_write_cluster(source, scope, out);
    buf_addc(out, '}');
}
