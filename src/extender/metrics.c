/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/metrics.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "placement/fragmentation.h"

/* -- the counters -- */

enum { CODES = ERR_INTERNAL + 1, LINE = 64 };

/* The statuses of the verbs; the last one stands for all others. */
static const struct {
    unsigned code;
    const char *name;
} statuses[] = {{200, "200"}, {400, "400"}, {421, "421"}, {503, "503"}, {0, "other"}};

typedef _Atomic uint64_t tally;

/* Aligned so that two verbs never share a cache line. */
struct verb {
    _Alignas(LINE) struct prom_histogram took;
    tally statuses[ARRAY_LEN(statuses)];
};

struct counters {
    struct verb verbs[COUNTERS_VERBS];
    _Alignas(LINE) tally rejected[REASON_CLASSES];
    tally filters[2]; /* without and with a node that fits */
    _Alignas(LINE) tally binds[CODES];
    tally forwarded;
    tally calls[COUNTERS_API_CALLS][CODES];
};

struct counters *counters_new(void)
{
    return xzalloc_cacheline(sizeof(struct counters));
}

void counters_free(struct counters *c)
{
    free(c);
}

static void add(tally *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static int64_t get(const tally *counter)
{
    return (int64_t)atomic_load_explicit(counter, memory_order_relaxed);
}

void counters_verb(struct counters *c, enum counters_verb verb, unsigned status,
                   int64_t ns)
{
    if (!c)
        return;
    size_t i = 0;
    while (statuses[i].code && statuses[i].code != status)
        i++;
    prom_observe(&c->verbs[verb].took, ns);
    add(&c->verbs[verb].statuses[i], 1);
}

void counters_filter(struct counters *c, const uint32_t rejected[REASON_CLASSES],
                     bool fits)
{
    if (!c)
        return;
    for (int i = 0; i < REASON_CLASSES; i++)
        if (rejected[i])
            add(&c->rejected[i], rejected[i]);
    add(&c->filters[fits], 1);
}

void counters_bind(struct counters *c, enum err_code code)
{
    if (c)
        add(&c->binds[code], 1);
}

void counters_bind_forwarded(struct counters *c)
{
    if (c)
        add(&c->forwarded, 1);
}

void counters_api_call(struct counters *c, enum counters_api_call call,
                       enum err_code code)
{
    if (c)
        add(&c->calls[call][code], 1);
}

static const char *const verb_names[COUNTERS_VERBS] = {"filter", "prioritize", "preempt",
                                                       "bind"};
static const char *const call_names[COUNTERS_API_CALLS] = {
    "list",        "watch",    "bind",  "get-pod", "lease-get", "lease-write",
    "node-wakeup", "nominate", "evict", "event",   "secret"};

static struct prom_label label(const char *name, const char *value)
{
    return (struct prom_label){name, span_of(value)};
}

static const char *code_name(int code)
{
    return code == ERR_NONE ? "ok" : err_code_name((enum err_code)code);
}

static void write_verbs(const struct counters *c, struct buf *out)
{
    static const char took[] = "gpushare_verb_duration_seconds";
    static const char requests[] = "gpushare_verb_requests_total";
    prom_family(out, took, PROM_HISTOGRAM,
                "Time from the complete body to the complete reply of a verb.");
    for (int v = 0; v < COUNTERS_VERBS; v++)
        prom_histogram(out, took, &(struct prom_label){"verb", span_of(verb_names[v])}, 1,
                       &c->verbs[v].took);
    prom_family(out, requests, PROM_COUNTER, "Calls of verbs, by HTTP status.");
    for (int v = 0; v < COUNTERS_VERBS; v++)
        for (size_t s = 0; s < ARRAY_LEN(statuses); s++) {
            struct prom_label labels[] = {label("verb", verb_names[v]),
                                          label("code", statuses[s].name)};
            prom_sample(out, requests, labels, 2, get(&c->verbs[v].statuses[s]));
        }
}

static void write_filter(const struct counters *c, struct buf *out)
{
    static const char rejected[] = "gpushare_filter_rejected_nodes_total";
    static const char results[] = "gpushare_filter_results_total";
    prom_family(out, rejected, PROM_COUNTER, "Nodes that filter rejected, by reason.");
    for (int i = 0; i < REASON_CLASSES; i++) {
        struct prom_label l = label("reason", reason_class_name((enum reason_class)i));
        prom_sample(out, rejected, &l, 1, get(&c->rejected[i]));
    }
    prom_family(out, results, PROM_COUNTER, "Calls of filter, by whether any node fits.");
    for (int fits = 0; fits < 2; fits++) {
        struct prom_label l = label("fits", fits ? "true" : "false");
        prom_sample(out, results, &l, 1, get(&c->filters[fits]));
    }
}

static void write_binds(const struct counters *c, struct buf *out)
{
    static const char name[] = "gpushare_binds_total";
    prom_family(out, name, PROM_COUNTER, "Binds, by result.");
    for (int code = 0; code < CODES; code++) {
        struct prom_label l = label("result", code_name(code));
        prom_sample(out, name, &l, 1, get(&c->binds[code]));
    }
    struct prom_label l = label("result", "forwarded");
    prom_sample(out, name, &l, 1, get(&c->forwarded));
}

/* Results that never occurred are left out, except ok: there would be 88 samples. */
static void write_calls(const struct counters *c, struct buf *out)
{
    static const char name[] = "gpushare_api_requests_total";
    prom_family(out, name, PROM_COUNTER, "Requests to the API server, by result.");
    for (int call = 0; call < COUNTERS_API_CALLS; call++)
        for (int code = 0; code < CODES; code++) {
            int64_t n = get(&c->calls[call][code]);
            struct prom_label labels[] = {label("call", call_names[call]),
                                          label("code", code_name(code))};
            if (n || code == ERR_NONE)
                prom_sample(out, name, labels, 2, n);
        }
}

void counters_write(const struct counters *c, struct buf *out)
{
    if (!c)
        return;
    write_verbs(c, out);
    write_filter(c, out);
    write_binds(c, out);
    write_calls(c, out);
}

/* -- the state of this process -- */

static void gauge(struct buf *out, const char *name, const char *help, int64_t value)
{
    prom_one(out, name, PROM_GAUGE, help, value);
}

static void write_build(struct buf *out)
{
    struct prom_label l = {"version", SPAN(GPUSHARE_VERSION)};
    prom_family(out, "gpushare_build_info", PROM_GAUGE, "Version of this program.");
    prom_sample(out, "gpushare_build_info", &l, 1, 1);
}

/* The state of the core, copied under the lock. */
struct state {
    bool ready, leader, may_bind;
    size_t pending, reservations, over;
    struct core_stats core;
    int64_t age_ms[CORE_KINDS]; /* of the last list or watch event; -1: never listed */
};

static void copy_state(struct core_driver *driver, struct state *s)
{
    const struct core *core = core_driver_read(driver);
    const struct ledger *l = core_ledger(core);
    struct step_time now = core_driver_now();
    *s = (struct state){.ready = core_ready(core, now, NULL) == 0,
                        .leader = core_is_leader(core),
                        .may_bind = core_may_bind(core, now, NULL) == 0,
                        .pending = ledger_totals(l).pending,
                        .reservations = ledger_totals(l).reservations,
                        .over = ledger_totals(l).overcommitted,
                        .core = core_stats(core)};
    for (int kind = 0; kind < CORE_KINDS; kind++)
        s->age_ms[kind] = core_watch_age_ms(core, now, (enum core_kind)kind);
    core_driver_read_end(driver);
}

static void write_watches(const struct state *s, struct buf *out)
{
    static const char synced[] = "gpushare_watch_synced";
    static const char age[] = "gpushare_watch_age_seconds";
    prom_family(out, synced, PROM_GAUGE, "Whether the resource has been listed.");
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct prom_label l = {"resource", span_of(core_kind_name((enum core_kind)kind))};
        prom_sample(out, synced, &l, 1, s->age_ms[kind] >= 0);
    }
    prom_family(out, age, PROM_GAUGE,
                "Time since the last event or bookmark of a listed resource.");
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct prom_label l = {"resource", span_of(core_kind_name((enum core_kind)kind))};
        if (s->age_ms[kind] >= 0)
            prom_nano(out, age, &l, 1, s->age_ms[kind] * 1000000);
    }
}

static void write_state(const struct state *s, struct buf *out)
{
    gauge(out, "gpushare_ready", "Whether this replica answers the verbs.", s->ready);
    gauge(out, "gpushare_leader", "Whether this replica is the leader.", s->leader);
    gauge(out, "gpushare_may_bind", "Whether this replica may start a bind now.",
          s->may_bind);
    write_watches(s, out);
    gauge(out, "gpushare_pending_pods", "Pods that request GPUs and are not bound.",
          (int64_t)s->pending);
    gauge(out, "gpushare_reservations",
          "Pods for which the leader reserves cards from filter to bind.",
          (int64_t)s->reservations);
    gauge(out, "gpushare_binds_in_flight",
          "Binds whose promise is not yet confirmed or released.",
          (int64_t)s->core.binds_in_flight);
    gauge(out, "gpushare_binds_unknown", "Binds in flight whose outcome is unknown.",
          (int64_t)s->core.binds_unknown);
    gauge(out, "gpushare_cards_overcommitted",
          "Cards with more memory promised than they have.", (int64_t)s->over);
    prom_one(out, "gpushare_overcommits_total", PROM_COUNTER,
             "Times that a card became overcommitted.", (int64_t)s->core.overcommits);
}

static void counter(struct buf *out, const char *name, const char *help, uint64_t value)
{
    prom_one(out, name, PROM_COUNTER, help, (int64_t)value);
}

static void write_preemptions(const struct core_preemptions *p, struct buf *out)
{
    static const char pods[] = "gpushare_preemption_pods";
    const struct prom_label waiting = {"state", SPAN("waiting")},
                            kept = {"state", SPAN("kept")};
    prom_family(out, pods, PROM_GAUGE,
                "Pending pods that evictions could help, or for which cards are kept.");
    prom_sample(out, pods, &waiting, 1, (int64_t)p->waiting);
    prom_sample(out, pods, &kept, 1, (int64_t)p->kept);
    counter(out, "gpushare_preemption_started_total",
            "Layout preemptions that were started.", p->started);
    counter(out, "gpushare_preemption_abandoned_total",
            "Layout preemptions that ended without all evictions.", p->abandoned);
    counter(out, "gpushare_preemption_evicted_pods_total",
            "Pods that layout preemption evicted.", p->evicted);
    counter(out, "gpushare_preemption_refused_evictions_total",
            "Evictions that a PodDisruptionBudget did not allow.", p->refused);
}

void metrics_write(const struct metrics_source *source, struct buf *out)
{
    struct state state;
    write_build(out);
    copy_state(source->driver, &state);
    write_state(&state, out);
    write_preemptions(&state.core.preemptions, out);
    counters_write(source->counters, out);
    if (source->recorder)
        event_recorder_write(source->recorder, out);
}

/* -- the ledger -- */

enum { NODE_STATES = NODE_DAMAGED + 1, CARD_STATES = CARD_DUPLICATE + 1, DIGITS = 12 };

/* Memory, in MiB. */
enum amount {
    CAPACITY,
    PROMISED,
    USED,
    WITHHELD,
    OVERUSE,
    RESERVED,
    FREE,
    CORDONED,
    STRANDED,
    AMOUNTS
};

static const struct {
    const char *cluster, *node, *card, *help; /* NULL: no such metric */
} amounts[AMOUNTS] = {
    [CAPACITY] = {"gpushare_memory_capacity_bytes", "gpushare_node_memory_capacity_bytes",
                  "gpushare_card_memory_capacity_bytes", "Memory of all cards."},
    [PROMISED] = {"gpushare_memory_promised_bytes", "gpushare_node_memory_promised_bytes",
                  "gpushare_card_memory_promised_bytes", "Memory promised to pods."},
    [USED] = {"gpushare_memory_used_bytes", "gpushare_node_memory_used_bytes",
              "gpushare_card_memory_used_bytes",
              "Measured memory in use; cards without a measurement are not counted."},
    [WITHHELD] = {"gpushare_memory_withheld_bytes", NULL, NULL,
                  "Memory withheld because processes outside Kubernetes use it, or pods "
                  "beyond their promises."},
    [OVERUSE] =
        {"gpushare_memory_overuse_bytes", NULL, NULL,
         "Withheld memory that pods use beyond their promises, where it is known."},
    [RESERVED] =
        {"gpushare_memory_reserved_bytes", NULL, NULL,
         "Memory reserved for pods from filter to bind; only the leader has any."},
    [FREE] = {"gpushare_memory_free_bytes", "gpushare_node_memory_free_bytes",
              "gpushare_card_memory_free_bytes",
              "Memory that can still be promised, on usable nodes."},
    [CORDONED] = {"gpushare_memory_free_cordoned_bytes", NULL, NULL,
                  "Free memory on cordoned nodes."},
    [STRANDED] = {"gpushare_memory_stranded_bytes", "gpushare_node_memory_stranded_bytes",
                  NULL,
                  "Free memory in pieces too small for recent pods, or without the CPU "
                  "for them: the mean over their requests."},
};

static const char *const node_states[NODE_STATES] = {
    [NODE_USABLE] = "usable",           [NODE_UNKNOWN] = "unknown",
    [NODE_SCV_MISSING] = "scv-missing", [NODE_SCV_DAMAGED] = "scv-invalid",
    [NODE_SCV_EMPTY] = "scv-empty",     [NODE_NO_GPU] = "no-gpu",
    [NODE_NO_COUNT] = "count-missing",  [NODE_ALLOCATABLE_LOW] = "allocatable-low",
    [NODE_STALE] = "heartbeat-lost",    [NODE_LIST_DAMAGED] = "configmap-invalid",
    [NODE_MISSING] = "node-missing",    [NODE_DAMAGED] = "node-invalid",
};

static const char *const card_states[CARD_STATES] = {
    [CARD_AVAILABLE] = "healthy",        [CARD_UNHEALTHY] = "unhealthy",
    [CARD_LISTED] = "excluded",          [CARD_HELD] = "other-plugin",
    [CARD_DUPLICATE] = "duplicate-uuid",
};

static const char *const drifts[DRIFTS] = {
    [DRIFT_OVERCOMMITTED] = "overcommitted",
    [DRIFT_OUTSIDE] = "external-use",
    [DRIFT_OVERUSE] = "overuse",
    [DRIFT_UNPLACED] = "card-missing",
    [DRIFT_CARDLESS] = "no-card",
    [DRIFT_WRONG_CARD] = "wrong-card",
    [DRIFT_CAPACITY] = "capacity",
    [DRIFT_LISTED] = "configmap-unknown-card",
    [DRIFT_DUPLICATE] = "duplicate-uuid",
    [DRIFT_FORGED] = "forged",
};

/* The values of a node or a card. */
struct row {
    struct span node, uuid, model; /* copied */
    char index[DIGITS];
    int64_t mib[AMOUNTS];
    int64_t cards, healthy, cordoned, core;
    bool measured;
};

struct table {
    struct row *rows;
    size_t n, cap;
};

struct count {
    enum metrics_detail detail;
    struct frag frag;
    struct arena arena;
    int64_t mib[AMOUNTS];
    int64_t node_states[NODE_STATES], card_states[CARD_STATES], drifts[DRIFTS];
    int64_t cordoned, promises, without_card, measured, complete;
    struct table nodes, cards;
};

static struct row *row_add(struct table *t)
{
    MEM_GROW(t->rows, t->cap, t->n + 1);
    t->rows[t->n] = (struct row){0};
    return &t->rows[t->n++];
}

static void count_card(struct count *c, const struct ledger_node *node,
                       const struct card *card, int64_t mib[AMOUNTS])
{
    int64_t amount[AMOUNTS] = {
        [CAPACITY] = card->total_mib,
        [PROMISED] = card->promised_mib,
        [USED] = card->used_mib > 0 ? card->used_mib : 0,
        [WITHHELD] = card->withheld_mib,
        [OVERUSE] = card->overuse_mib,
        [RESERVED] = card->reserved_mib,
        [FREE] = node->state == NODE_USABLE ? card->free_mib : 0,
    };
    amount[CORDONED] = node->cordoned ? amount[FREE] : 0;
    for (int i = 0; i < AMOUNTS; i++)
        mib[i] += amount[i] = frag_clamp(amount[i]);
    c->card_states[card->state]++;
    c->promises += card->pods;
    c->measured += card->used_mib >= 0;
    c->complete += card->use_known;
    if (c->detail < METRICS_CARD)
        return;
    struct row *row = row_add(&c->cards);
    row->node = arena_copy(&c->arena, node->name);
    row->uuid = arena_copy(&c->arena, card->uuid);
    row->model = arena_copy(&c->arena, card->model);
    row->healthy = card->state == CARD_AVAILABLE;
    row->core = card->compute_promised;
    row->measured = card->used_mib >= 0;
    memcpy(row->mib, amount, sizeof amount);
    snprintf(row->index, sizeof row->index, "%d", card->index);
}

/* Counts pods that were bound without the extender. (DRIFT_CARDLESS leaves out
 * those on nodes with one card.) */
static void count_pods(struct count *c, const struct ledger_node *node)
{
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        c->without_card += pod->n_shares == 0 && pod->request->kind != REQUEST_DEVICES &&
                           pod->request->kind != REQUEST_NONE;
}

static void count_node(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    struct count *c = ctx;
    struct frag_node now;
    int64_t mib[AMOUNTS] = {0}, healthy = 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        count_card(c, node, &node->cards[i], mib);
        healthy += node->cards[i].state == CARD_AVAILABLE;
    }
    if (node->state == NODE_USABLE) {
        struct select_view view;
        select_view(&view, node, NULL, SELECT_AS_IS);
        frag_read(&view, node->cpu_milli ? node->cpu_free : FRAG_CPU_UNKNOWN, &now);
        mib[STRANDED] = frag_measure(&c->frag, &now) >> FRAG_SHIFT;
    }
    for (int i = 0; i < AMOUNTS; i++)
        c->mib[i] += mib[i];
    c->node_states[node->state]++;
    c->cordoned += node->cordoned && node->state == NODE_USABLE;
    count_pods(c, node);
    ledger_node_drift(l, node, c->drifts);
    if (c->detail < METRICS_NODE)
        return;
    struct row *row = row_add(&c->nodes);
    row->node = arena_copy(&c->arena, node->name);
    row->cards = node->n_cards;
    row->healthy = healthy;
    row->cordoned = node->cordoned;
    row->measured = true;
    memcpy(row->mib, mib, sizeof mib);
}

/* -- output -- */

static int64_t bytes(int64_t mib)
{
    return mib > INT64_MAX >> 20 ? INT64_MAX : mib << 20;
}

static void write_by_label(struct buf *out, const char *name, const char *help,
                           const char *label, const char *const *values, const int64_t *n,
                           size_t count)
{
    prom_family(out, name, PROM_GAUGE, help);
    for (size_t i = 0; i < count; i++)
        prom_sample(out, name, &(struct prom_label){label, span_of(values[i])}, 1, n[i]);
}

static void write_sums(const struct count *c, struct buf *out)
{
    write_by_label(out, "gpushare_nodes", "Nodes, by state.", "state", node_states,
                   c->node_states, NODE_STATES);
    gauge(out, "gpushare_nodes_cordoned", "Usable nodes that are cordoned.", c->cordoned);
    write_by_label(out, "gpushare_cards", "Cards, by state.", "state", card_states,
                   c->card_states, CARD_STATES);
    gauge(out, "gpushare_cards_measured", "Cards whose memory use is measured.",
          c->measured);
    gauge(out, "gpushare_cards_usage_complete",
          "Cards of which every process is measured and mapped.", c->complete);
    for (int i = 0; i < AMOUNTS; i++)
        gauge(out, amounts[i].cluster, amounts[i].help, bytes(c->mib[i]));
    gauge(out, "gpushare_promises", "Promises on cards; a pod on two cards has two.",
          c->promises);
    gauge(out, "gpushare_promises_unplaced",
          "Promises on cards that the node does not have.", c->drifts[DRIFT_UNPLACED]);
    gauge(out, "gpushare_pods_without_card",
          "Pods that were bound without the extender and have no card.", c->without_card);
    write_by_label(out, "gpushare_drift",
                   "Inconsistencies between ledger, annotations, Node and Scv, by kind.",
                   "kind", drifts, c->drifts, DRIFTS);
}

/* A family with one value per row, an int64_t at `offset`. The first `labels` of node and card
 * name the row. */
static void write_column(const struct table *t, size_t labels, const char *name,
                         const char *help, size_t offset, struct buf *out)
{
    bool is_mib = offset >= offsetof(struct row, mib) &&
                  offset < offsetof(struct row, mib) + sizeof t->rows->mib;
    prom_family(out, name, PROM_GAUGE, help);
    for (size_t i = 0; i < t->n; i++) {
        const struct row *row = &t->rows[i];
        const struct prom_label l[] = {{"node", row->node},
                                       {"card", span_of(row->index)}};
        int64_t value = *(const int64_t *)(const void *)((const char *)row + offset);
        if (row->measured || offset != offsetof(struct row, mib[USED]))
            prom_sample(out, name, l, labels, is_mib ? bytes(value) : value);
    }
}

static void write_amounts(const struct table *t, size_t labels, struct buf *out)
{
    for (int k = 0; k < AMOUNTS; k++) {
        const char *name = labels == 1 ? amounts[k].node : amounts[k].card;
        if (name)
            write_column(t, labels, name, amounts[k].help,
                         offsetof(struct row, mib) + (size_t)k * sizeof t->rows->mib[0],
                         out);
    }
}

static void write_per_node(const struct table *t, struct buf *out)
{
    write_amounts(t, 1, out);
    write_column(t, 1, "gpushare_node_cards", "Cards of the node.",
                 offsetof(struct row, cards), out);
    write_column(t, 1, "gpushare_node_cards_healthy", "Healthy cards of the node.",
                 offsetof(struct row, healthy), out);
    write_column(t, 1, "gpushare_node_cordoned", "Whether the node is cordoned.",
                 offsetof(struct row, cordoned), out);
}

static void write_per_card(const struct table *t, struct buf *out)
{
    static const char compute[] = "gpushare_card_compute_promised_ratio",
                      info[] = "gpushare_card_info";
    write_amounts(t, 2, out);
    prom_family(out, compute, PROM_GAUGE,
                "Share of the card's compute that is promised to pods.");
    for (size_t i = 0; i < t->n; i++)
        prom_nano(out, compute,
                  (struct prom_label[]){{"node", t->rows[i].node},
                                        {"card", span_of(t->rows[i].index)}},
                  2, t->rows[i].core * 10000000); /* percent */
    write_column(t, 2, "gpushare_card_healthy", "Whether the card gets new pods.",
                 offsetof(struct row, healthy), out);
    prom_family(out, info, PROM_GAUGE, "UUID and model of the card.");
    for (size_t i = 0; i < t->n; i++)
        prom_sample(out, info,
                    (struct prom_label[]){{"node", t->rows[i].node},
                                          {"card", span_of(t->rows[i].index)},
                                          {"uuid", t->rows[i].uuid},
                                          {"model", t->rows[i].model}},
                    4, 1);
}

void metrics_write_ledger(const struct metrics_source *source, struct buf *out)
{
    struct request_mix mix = *ledger_mix(core_ledger(core_driver_read(source->driver)));
    core_driver_read_end(source->driver);
    struct count c = {.detail = source->detail};
    frag_prepare(&c.frag, &mix, false);
    view_source_each_node(core_driver_source(source->driver), count_node, &c);
    write_sums(&c, out);
    if (c.detail >= METRICS_NODE)
        write_per_node(&c.nodes, out);
    if (c.detail >= METRICS_CARD)
        write_per_card(&c.cards, out);
    free(c.nodes.rows);
    free(c.cards.rows);
    arena_fini(&c.arena);
    frag_fini(&c.frag);
}
