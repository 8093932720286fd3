/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"
#include "domain/diagnosis.h"
#include "placement/fragmentation.h"

/* -- the counters -- */

enum { CALLERS = 3, CALLER_MAX = 64 };
enum { STATUSES = 5, UNRESERVED = 3, CODES = ERR_INTERNAL + 1, FORWARDED = CODES, BINDS };

typedef _Atomic uint64_t tally;

struct counters {
    struct prom_histogram took[COUNTERS_VERBS];
    tally statuses[COUNTERS_VERBS][STATUSES];
    tally rejected[REASON_CLASSES];
    tally filters[2]; /* without and with a node that fits */
    tally unreserved[UNRESERVED];
    tally binds[BINDS];
    tally calls[COUNTERS_API_CALLS][CODES];

    pthread_mutex_t lock; /* protects the next member */
    struct {
        char name[CALLER_MAX];
        int64_t ns;         /* of the last filter, since 1970 */
    } callers[CALLERS + 1]; /* the last: all others */
};

struct counters *counters_new(void)
{
    struct counters *c = xcalloc(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void counters_free(struct counters *c)
{
    if (c)
        pthread_mutex_destroy(&c->lock);
    free(c);
}

static void add(tally *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* The statuses of the verbs; the last one stands for all others. */
static const unsigned statuses[STATUSES] = {200, 400, 421, 503, 0};

void counters_verb(struct counters *c, enum counters_verb verb, unsigned status,
                   int64_t ns)
{
    if (!c)
        return;
    size_t i = 0;
    while (statuses[i] && statuses[i] != status)
        i++;
    prom_observe(&c->took[verb], ns);
    add(&c->statuses[verb][i], 1);
}

void counters_filter_call(struct counters *c, const char *caller)
{
    size_t i = 0;
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    while (i < CALLERS && *c->callers[i].name &&
           strncmp(c->callers[i].name, caller, CALLER_MAX - 1) != 0)
        i++;
    snprintf(c->callers[i].name, CALLER_MAX, "%s", i < CALLERS ? caller : "other");
    c->callers[i].ns = clock_wall_ns();
    pthread_mutex_unlock(&c->lock);
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

void counters_unreserved(struct counters *c, enum core_reserve_outcome why)
{
    if (c)
        add(&c->unreserved[why == CORE_RESERVE_NOT_NOW ? 0
                           : why == CORE_RESERVE_FULL  ? 1
                                                       : 2],
            1);
}

void counters_bind(struct counters *c, enum err_code code)
{
    if (c)
        add(&c->binds[code], 1);
}

void counters_bind_forwarded(struct counters *c)
{
    if (c)
        add(&c->binds[FORWARDED], 1);
}

void counters_api_call(struct counters *c, enum counters_api_call call,
                       enum err_code code)
{
    if (c)
        add(&c->calls[call][code], 1);
}

static const char *const verb_names[COUNTERS_VERBS] = {"filter", "prioritize", "preempt",
                                                       "bind"};
static const char *const status_names[STATUSES] = {"200", "400", "421", "503", "other"};
static const char *const fits_names[] = {"false", "true"};
static const char *const unreserved_names[UNRESERVED] = {"no-leader", "full", "taken"};
static const char *const call_names[COUNTERS_API_CALLS] = {
    "list",        "watch",    "bind",  "get-pod", "lease-get", "lease-write",
    "node-wakeup", "nominate", "evict", "event",   "secret"};

static const char *reason_name(int i)
{
    return reason_class_name((enum reason_class)i);
}

static const char *result_name(int i)
{
    return i == ERR_NONE    ? "ok"
           : i == FORWARDED ? "forwarded"
                            : err_code_name((enum err_code)i);
}

/* A family of counters: a sample for each value of a label, in rows by a first label. */
static const struct family {
    const char *name, *help;
    size_t at; /* in struct counters */
    int rows, n;
    const char *label, *row_label; /* row_label: NULL if there is one row */
    const char *const *values, *const *row_values;
    const char *(*value)(int i); /* without `values` */
    /* Values that never occurred are left out, except the first. */
    bool sparse;
} families[] = {
    {"gpushare_verb_requests_total", "Calls of verbs, by HTTP status.",
     offsetof(struct counters, statuses), COUNTERS_VERBS, STATUSES, "code", "verb",
     status_names, verb_names, NULL, false},
    {"gpushare_filter_rejected_nodes_total", "Nodes that filter rejected, by reason.",
     offsetof(struct counters, rejected), 1, REASON_CLASSES, "reason", NULL, NULL, NULL,
     reason_name, false},
    {"gpushare_filter_results_total", "Calls of filter, by whether any node fits.",
     offsetof(struct counters, filters), 1, 2, "fits", NULL, fits_names, NULL, NULL,
     false},
    {"gpushare_filter_unreserved_total",
     "Calls of filter that named a node without reserving its cards, by reason.",
     offsetof(struct counters, unreserved), 1, UNRESERVED, "reason", NULL,
     unreserved_names, NULL, NULL, false},
    {"gpushare_binds_total", "Binds, by result.", offsetof(struct counters, binds), 1,
     BINDS, "result", NULL, NULL, NULL, result_name, false},
    {"gpushare_api_requests_total", "Requests to the API server, by result.",
     offsetof(struct counters, calls), COUNTERS_API_CALLS, CODES, "code", "call", NULL,
     call_names, result_name, true},
};

void counters_write(struct counters *c, struct buf *out)
{
    static const char last[] = "gpushare_filter_last_call_timestamp_seconds";
    static const char took[] = "gpushare_verb_duration_seconds";
    if (!c)
        return;
    prom_family(out, took, PROM_HISTOGRAM,
                "Time from the complete body to the complete reply of a verb.");
    for (int v = 0; v < COUNTERS_VERBS; v++)
        prom_histogram(out, took, &(struct prom_label){"verb", span_of(verb_names[v])}, 1,
                       &c->took[v]);
    for (const struct family *f = families; f < families + ARRAY_LEN(families); f++) {
        const tally *at = (const void *)((const char *)c + f->at);
        prom_family(out, f->name, PROM_COUNTER, f->help);
        for (int i = 0; i < f->rows * f->n; i++, at++) {
            const char *row = f->row_label ? f->row_values[i / f->n] : NULL;
            const struct prom_label labels[] = {
                {f->row_label, span_of(row)},
                {f->label,
                 span_of(f->values ? f->values[i % f->n] : f->value(i % f->n))}};
            int64_t n = (int64_t)atomic_load_explicit(at, memory_order_relaxed);
            if (n || !f->sparse || i % f->n == 0)
                prom_sample(out, f->name, labels + !row, 1 + !!row, n);
        }
    }
    prom_family(out, last, PROM_GAUGE, "When each client last called filter.");
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i <= CALLERS; i++)
        if (c->callers[i].ns)
            prom_nano(out, last,
                      &(struct prom_label){"caller", span_of(c->callers[i].name)}, 1,
                      c->callers[i].ns);
    pthread_mutex_unlock(&c->lock);
}

/* -- the state of this process -- */

static void write_by_label(struct buf *out, const char *name, const char *help,
                           const char *label, const char *const *values, const int64_t *n,
                           size_t count)
{
    prom_family(out, name, PROM_GAUGE, help);
    for (size_t i = 0; i < count; i++)
        prom_labelled(out, name, label, values[i], n[i]);
}

static void write_watches(const int64_t age_ms[CORE_ALL_KINDS], int kinds,
                          struct buf *out)
{
    static const char age[] = "gpushare_watch_age_seconds";
    const char *names[CORE_ALL_KINDS];
    int64_t synced[CORE_ALL_KINDS];
    for (int kind = 0; kind < kinds; kind++) {
        names[kind] = core_kind_name((enum core_kind)kind);
        synced[kind] = age_ms[kind] >= 0;
    }
    write_by_label(out, "gpushare_watch_synced", "Whether the resource has been listed.",
                   "resource", names, synced, (size_t)kinds);
    prom_family(out, age, PROM_GAUGE,
                "Time since the last event or bookmark of a listed resource.");
    for (int kind = 0; kind < kinds; kind++)
        if (synced[kind])
            prom_nano(out, age, &(struct prom_label){"resource", span_of(names[kind])}, 1,
                      age_ms[kind] * 1000000);
}

/* The state of the core, copied under the lock. */
static void write_state(struct core_driver *driver, struct buf *out)
{
    /* The last of `values`, which are left out while the ledger is not known; before them
     * the one that is left out until it has been known. */
    enum { OF_LEDGER = 3 };
    static const char *const states[] = {"waiting", "kept"};
    const struct core *core = core_driver_read(driver);
    const struct step_time now = core_driver_now();
    const struct ledger_totals totals = ledger_totals(core_ledger(core));
    const struct core_stats stats = core_stats(core);
    const struct core_preemptions p = stats.preemptions;
    const int64_t pods[] = {(int64_t)p.waiting, (int64_t)p.kept};
    int64_t age_ms[CORE_ALL_KINDS], since_ns;
    int kinds = core_quotas(core) ? CORE_ALL_KINDS : CORE_KINDS;
    bool ready = core_ready(core, now, NULL) == 0;
    core_current(core, now, &since_ns, NULL);
    for (int kind = 0; kind < kinds; kind++)
        age_ms[kind] = core_watch_age_ms(core, now, (enum core_kind)kind);
    const struct {
        const char *name, *help;
        uint64_t value;
    } values[] = {
        {"gpushare_ready", "Whether this replica answers the verbs.", ready},
        {"gpushare_leader", "Whether this replica is the leader.", core_is_leader(core)},
        {"gpushare_may_bind", "Whether this replica may start a bind now.",
         core_check_may_bind(core, now, NULL) == 0},
        {"gpushare_binds_in_flight",
         "Binds whose promise is not yet confirmed or released.", stats.binds_in_flight},
        {"gpushare_binds_unknown", "Binds in flight whose outcome is unknown.",
         stats.binds_unknown},
        {"gpushare_binds_held", "Binds in flight that wait for other members of a gang.",
         stats.binds_held},
        {"gpushare_gangs_in_turn",
         "Gangs that take turns, because their binds were held in vain.",
         stats.gangs_in_turn},
        {"gpushare_gang_starts_failed_total",
         "Times that binds of a gang were held, or its turn ended, without a Binding.",
         stats.gangs_failed},
        {"gpushare_overcommits_total", "Times that a card became overcommitted.",
         stats.overcommits},
        {"gpushare_preemption_started_total", "Layout preemptions that were started.",
         p.started},
        {"gpushare_preemption_abandoned_total",
         "Layout preemptions that ended without all evictions.", p.abandoned},
        {"gpushare_preemption_evicted_pods_total", "Pods that layout preemption evicted.",
         p.evicted},
        {"gpushare_preemption_refused_evictions_total",
         "Evictions that a PodDisruptionBudget did not allow.", p.refused},
        {"gpushare_stale_seconds",
         "Time since when lists or watches fail; 0: the ledger is current.",
         (uint64_t)(now.wall_ns - since_ns) / 1000000000},
        /* of the ledger */
        {"gpushare_pending_pods", "Pods that request GPUs and are not bound.",
         totals.pending},
        {"gpushare_reservations",
         "Pods for which the leader reserves cards from filter to bind.",
         totals.reservations},
        {"gpushare_cards_overcommitted",
         "Cards with more memory promised than they have.", totals.overcommitted},
    };
    core_driver_read_end(driver);
    for (size_t i = 0; i < ARRAY_LEN(values) - (ready ? 0 : OF_LEDGER + !since_ns); i++)
        prom_one(out, values[i].name, values[i].help, (int64_t)values[i].value);
    write_by_label(out, "gpushare_preemption_pods",
                   "Pending pods that evictions could help, or for which cards are kept.",
                   "state", states, pods, ARRAY_LEN(pods));
    write_watches(age_ms, kinds, out);
}

void metrics_write(const struct metrics_source *source, struct buf *out)
{
    static const char build[] = "gpushare_build_info";
    prom_family(out, build, PROM_GAUGE, "Version of this program.");
    prom_labelled(out, build, "version", GPUSHARE_VERSION, 1);
    write_state(source->driver, out);
    counters_write(source->counters, out);
    if (source->recorder)
        event_recorder_write(source->recorder, out);
}

/* -- the ledger -- */

enum {
    NODE_STATES = NODE_DAMAGED + 1,
    DIGITS = 12,
    PENDING_MAX = 8192, /* pods that have been pending for longest ... */
    REQUESTS_MAX = 16   /* ... and different requests of them that are judged */
};

static const char *const node_states[NODE_STATES] = {
    [NODE_USABLE] = "usable",           [NODE_UNKNOWN] = "unknown",
    [NODE_SCV_MISSING] = "scv-missing", [NODE_SCV_DAMAGED] = "scv-invalid",
    [NODE_SCV_EMPTY] = "scv-empty",     [NODE_NO_GPU] = "no-gpu",
    [NODE_NO_COUNT] = "count-missing",  [NODE_ALLOCATABLE_LOW] = "allocatable-low",
    [NODE_STALE] = "heartbeat-lost",    [NODE_LIST_DAMAGED] = "configmap-invalid",
    [NODE_MISSING] = "node-missing",    [NODE_DAMAGED] = "node-invalid",
};

static const char *const card_states[] = {
    [CARD_AVAILABLE] = "healthy",        [CARD_UNHEALTHY] = "unhealthy",
    [CARD_EXCLUDED] = "excluded",        [CARD_HELD] = "other-plugin",
    [CARD_DUPLICATE] = "duplicate-uuid",
};
_Static_assert(ARRAY_LEN(card_states) == CARD_STATES, "a state without a name");

static const char *const drifts[DRIFTS] = {
    [DRIFT_OVERCOMMITTED] = "overcommitted",
    [DRIFT_EXTERNAL_USE] = "external-use",
    [DRIFT_OVERUSE] = "overuse",
    [DRIFT_CARD_MISSING] = "card-missing",
    [DRIFT_NO_CARD] = "no-card",
    [DRIFT_WRONG_CARD] = "wrong-card",
    [DRIFT_CAPACITY] = "capacity",
    [DRIFT_CONFIGMAP_UNKNOWN_CARD] = "configmap-unknown-card",
    [DRIFT_DUPLICATE_UUID] = "duplicate-uuid",
    [DRIFT_FORGED] = "forged",
    [DRIFT_MEMORY_UNIT] = "memory-unit",
};

/* What is known of a card, a node and the cluster: MiB, percent of compute, numbers. */
enum column {
    CAPACITY,
    PROMISED,
    USED,
    WITHHELD,
    OVERUSE,
    RESERVED,
    FREE,
    FREE_CORDONED,
    STRANDED,
    MIB, /* the columns before this one are amounts of memory */
    COMPUTE = MIB,
    HEALTHY,
    MEASURED,
    COMPLETE,
    PROMISES,
    USABLE_CORDONED,
    WITHOUT_CARD,
    COLUMNS
};

enum level { CLUSTER, NODE, CARD, LEVELS };

static const struct {
    const char *names[LEVELS], *help; /* NULL: no such metric */
} columns[COLUMNS] = {
    [CAPACITY] = {{"gpushare_memory_capacity_bytes",
                   "gpushare_node_memory_capacity_bytes",
                   "gpushare_card_memory_capacity_bytes"},
                  "Memory of all cards."},
    [PROMISED] = {{"gpushare_memory_promised_bytes",
                   "gpushare_node_memory_promised_bytes",
                   "gpushare_card_memory_promised_bytes"},
                  "Memory promised to pods."},
    [USED] = {{"gpushare_memory_used_bytes", "gpushare_node_memory_used_bytes",
               "gpushare_card_memory_used_bytes"},
              "Measured memory in use; cards without a measurement are not counted."},
    [WITHHELD] = {{"gpushare_memory_withheld_bytes"},
                  "Memory withheld because processes outside Kubernetes use it, or pods "
                  "beyond their promises."},
    [OVERUSE] = {{"gpushare_memory_overuse_bytes"},
                 "Withheld memory that pods use beyond their promises, where it is "
                 "known."},
    [RESERVED] = {{"gpushare_memory_reserved_bytes"},
                  "Memory reserved for pods from filter to bind; only the leader has "
                  "any."},
    [FREE] = {{"gpushare_memory_free_bytes", "gpushare_node_memory_free_bytes",
               "gpushare_card_memory_free_bytes"},
              "Memory that can still be promised, on usable nodes."},
    [FREE_CORDONED] = {{"gpushare_memory_free_cordoned_bytes"},
                       "Free memory on cordoned nodes."},
    [STRANDED] = {{"gpushare_memory_stranded_bytes",
                   "gpushare_node_memory_stranded_bytes"},
                  "Free memory in pieces too small for recent pods, or without the CPU "
                  "for them: the mean over their requests."},
    [COMPUTE] = {{NULL, NULL, "gpushare_card_compute_promised_ratio"},
                 "Share of the card's compute that is promised to pods."},
    [HEALTHY] = {{NULL, "gpushare_node_cards_healthy", "gpushare_card_healthy"},
                 "Healthy cards, which get new pods."},
    [MEASURED] = {{"gpushare_cards_measured"}, "Cards whose memory use is measured."},
    [COMPLETE] = {{"gpushare_cards_usage_complete"},
                  "Cards of which every process is measured and mapped."},
    [PROMISES] = {{"gpushare_promises"},
                  "Promises on cards; a pod on two cards has two."},
    [USABLE_CORDONED] = {{"gpushare_nodes_cordoned"}, "Usable nodes that are cordoned."},
    [WITHOUT_CARD] = {{"gpushare_pods_without_card"},
                      "Pods that were bound without the extender and have no card."},
};

struct row {
    struct span node, uuid, model;
    char index[DIGITS];
    int64_t values[COLUMNS];
};

enum pending { PENDING_FITS, PENDING_NO_ROOM, PENDING_WAITS, PENDINGS };

static const char *const pendings[PENDINGS] = {"fits", "no-room", "waits"};

struct pending_pods {
    int64_t since_s[PENDINGS]; /* creation of the oldest; 0: none */
    struct pending_request {
        const struct request *key; /* the ledger's, to compare only, as `ns` */
        struct span ns;            /* of the first pod */
        struct request request;    /* a copy */
        int64_t since_s;
        bool fits; /* on a node that takes pods */
    } requests[REQUESTS_MAX];
    size_t n;
};

struct count {
    struct pending_pods pending;
    enum metrics_detail detail;
    struct frag frag;
    struct arena arena;
    struct table {
        struct row *rows;
        size_t n, cap;
    } tables[LEVELS];
    int64_t node_states[NODE_STATES], card_states[CARD_STATES], drifts[DRIFTS];
};

static void note_age(int64_t *since_s, int64_t created_s)
{
    if (created_s && (!*since_s || created_s < *since_s))
        *since_s = created_s;
}

/* Bounded: under the lock. At first each namespace gets one request, so that none hides the
 * others. */
static void read_pending(struct count *c, const struct ledger *l, bool first)
{
    struct pending_pods *p = &c->pending;
    const struct ledger_pod *pod = ledger_last_pending(l);
    for (int n = 0; pod && n < PENDING_MAX; n++, pod = pod->prev) {
        size_t i = 0;
        struct pending_request *r = p->requests;
        bool waits = pod->member || pod->gated, enough = false;
        for (; i < p->n && r->key != pod->request; i++, r++)
            enough |= first && span_eq(r->ns, pod->ns);
        if (waits)
            note_age(&p->since_s[PENDING_WAITS], pod->created_s);
        if (waits || pod->invalid_reason || i == REQUESTS_MAX || (i == p->n && enough))
            continue;
        if (i == p->n) {
            p->n++;
            *r = (struct pending_request){
                pod->request, pod->ns,
                request_copy_without_parts(pod->request, &c->arena), 0, false};
        }
        note_age(&r->since_s, pod->created_s);
    }
}

static void add_row(struct count *c, enum level level, const struct row *row)
{
    struct table *t = &c->tables[level];
    if (level > (enum level)c->detail)
        return;
    MEM_GROW(t->rows, t->cap, t->n + 1);
    struct row *copy = &t->rows[t->n++];
    *copy = *row;
    copy->node = arena_copy(&c->arena, row->node);
    copy->uuid = arena_copy(&c->arena, row->uuid);
    copy->model = arena_copy(&c->arena, row->model);
}

static void count_node(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    struct count *c = ctx;
    const bool usable = node->state == NODE_USABLE;
    struct row row = {.node = node->name}, *cluster = c->tables[CLUSTER].rows;
    ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
    {
        struct row of = {
            .node = node->name,
            .uuid = card->uuid,
            .model = card->kind->model,
            .values = {
                [CAPACITY] = card->total_mib,
                [PROMISED] = card->promised_mib,
                [USED] = card->used_mib > 0 ? card->used_mib : 0,
                [WITHHELD] = card->withheld_mib,
                [OVERUSE] = card->overuse_mib,
                [RESERVED] = card->reserved_mib,
                [FREE] = usable ? card->free_mib : 0,
                [FREE_CORDONED] = usable && node->cordoned ? card->free_mib : 0,
                [COMPUTE] = card->compute_promised,
                [HEALTHY] = card->state == CARD_AVAILABLE,
                [MEASURED] = card->used_mib >= 0,
                [COMPLETE] = card->use_known,
                [PROMISES] = card->pods,
            }};
        snprintf(of.index, sizeof of.index, "%d", card->index);
        for (int i = 0; i < COLUMNS; i++)
            row.values[i] += of.values[i] = frag_clamp(of.values[i]);
        c->card_states[card->state]++;
        add_row(c, CARD, &of);
    }
    if (usable) {
        struct select_view view;
        struct frag_node now;
        select_view(&view, node, NULL, SELECT_AS_IS);
        frag_read(&view, node->cpu_milli ? node->cpu_free : FRAG_CPU_UNKNOWN, &now);
        row.values[STRANDED] = frag_measure(&c->frag, &now) >> FRAG_SHIFT;
        row.values[USABLE_CORDONED] = node->cordoned;
        for (size_t i = 0; !node->cordoned && i < c->pending.n; i++)
            c->pending.requests[i].fits |=
                select_fit(node, &c->pending.requests[i].request) == FIT_YES;
    }
    /* DRIFT_NO_CARD leaves out those on nodes with one card. */
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        row.values[WITHOUT_CARD] += pod->n_shares == 0 &&
                                    pod->request->kind != REQUEST_DEVICES &&
                                    pod->request->kind != REQUEST_NONE;
    for (int i = 0; i < COLUMNS; i++)
        cluster->values[i] += row.values[i];
    c->node_states[node->left_out && !usable ? NODE_NO_GPU : node->state]++;
    diagnosis_count(l, node, c->drifts);
    if (node->n_cards)
        add_row(c, NODE, &row);
}

static void write_column(const struct table *t, enum level level, enum column k,
                         struct buf *out)
{
    const char *name = columns[k].names[level];
    if (!name)
        return;
    prom_family(out, name, PROM_GAUGE, columns[k].help);
    for (size_t i = 0; i < t->n; i++) {
        const struct row *row = &t->rows[i];
        const struct prom_label labels[] = {{"node", row->node},
                                            {"card", span_of(row->index)}};
        int64_t value = row->values[k];
        if (k < MIB) /* bytes */
            value = value > INT64_MAX >> 20 ? INT64_MAX : value << 20;
        if (k == COMPUTE)
            prom_nano(out, name, labels, level, value * 10000000); /* percent */
        else if (k != USED || level != CARD || row->values[MEASURED])
            prom_sample(out, name, labels, level, value);
    }
}

/* As kube_resourcequota of kube-state-metrics. */
static void write_quotas(const struct core *core, struct buf *out)
{
    static const char name[] = "gpushare_resourcequota";
    const struct quotas *q = core_quotas(core);
    if (!q || core_quotas_ready(core, core_driver_now(), NULL))
        return;
    prom_family(
        out, name, PROM_GAUGE,
        "Resources of another system that a ResourceQuota limits: hard and used.");
    LIST_EACH(struct quota_namespace, n, &q->namespaces, link)
    for (const struct quota_limit *l = n->limits; l; l = l->next)
        for (int i = 0; i < 2 * QUOTA_RESOURCES; i++) {
            enum quota_resource k = (enum quota_resource)(i / 2);
            cleanup_buf struct buf resource = {0};
            int64_t amount =
                quotas_write(&resource, q, k, i % 2 ? n->used[k] : l->hard[k]);
            if (l->hard[k] >= 0)
                prom_sample(
                    out, name,
                    (struct prom_label[]){{"namespace", n->name},
                                          {"resourcequota", l->name},
                                          {"resource", buf_span(&resource)},
                                          {"type", i % 2 ? SPAN("used") : SPAN("hard")}},
                    4, amount);
        }
}

void metrics_write_ledger(const struct metrics_source *source, struct buf *out)
{
    const struct core *core = core_driver_read(source->driver);
    /* All replicas know the same: one of them exports the many series. */
    struct count c = {.detail = core_is_leader(core) ? source->detail : METRICS_CLUSTER};
    static const char oldest[] = "gpushare_pending_oldest_timestamp_seconds",
                      info[] = "gpushare_card_info";
    const struct table *cards = &c.tables[CARD];
    bool ready = core_ready(core, core_driver_now(), NULL) == 0;
    for (int first = 1; ready && first >= 0; first--)
        read_pending(&c, core_ledger(core), first);
    if (ready && core_is_leader(core))
        write_quotas(core, out);
    if (ready)
        frag_prepare(&c.frag, ledger_requests(core_ledger(core)), false);
    core_driver_read_end(source->driver);
    if (!ready) /* a part of the objects looks like drift; old ones are not known any more */
        return;
    add_row(&c, CLUSTER, &(struct row){0});
    view_source_each_node(core_driver_source(source->driver), count_node, &c);
    write_by_label(out, "gpushare_nodes", "Nodes, by state.", "state", node_states,
                   c.node_states, NODE_STATES);
    write_by_label(out, "gpushare_cards", "Cards, by state.", "state", card_states,
                   c.card_states, CARD_STATES);
    prom_one(out, "gpushare_promises_unplaced",
             "Promises on cards that the node does not have.",
             c.drifts[DRIFT_CARD_MISSING]);
    write_by_label(out, "gpushare_drift",
                   "Inconsistencies between ledger, annotations, Node and Scv, by kind.",
                   "kind", drifts, c.drifts, DRIFTS);
    for (enum level level = CLUSTER; level <= (enum level)c.detail; level++)
        for (int k = 0; k < COLUMNS; k++)
            write_column(&c.tables[level], level, (enum column)k, out);
    struct pending_pods *p = &c.pending;
    for (size_t i = 0; i < p->n; i++)
        note_age(&p->since_s[p->requests[i].fits ? PENDING_FITS : PENDING_NO_ROOM],
                 p->requests[i].since_s);
    prom_family(out, oldest, PROM_GAUGE,
                "When the oldest pending pod that requests GPUs was created.");
    for (int i = 0; i < PENDINGS; i++)
        if (p->since_s[i])
            prom_labelled(out, oldest, "state", pendings[i], p->since_s[i]);
    if (c.detail == METRICS_CARD)
        prom_family(out, info, PROM_GAUGE, "UUID and model of the card.");
    for (const struct row *r = cards->rows; r < cards->rows + cards->n; r++)
        prom_sample(out, info,
                    (struct prom_label[]){{"node", r->node},
                                          {"card", span_of(r->index)},
                                          {"uuid", r->uuid},
                                          {"model", r->model}},
                    4, 1);
    for (int i = 0; i < LEVELS; i++)
        free(c.tables[i].rows);
    arena_fini(&c.arena);
    frag_fini(&c.frag);
}
