/* SPDX-License-Identifier: Apache-2.0 */

/* A run against a cluster: lists and watches into the extender's core in observer mode,
 * copies of what its ledger does not keep, the extender's view, the memory unit. */

#include "cli/session.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "apisync/apisync.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/jread.h"
#include "base/list.h"
#include "base/mem.h"
#include "cli/kubectl.h"
#include "cli/table.h"
#include "domain/dialect.h"
#include "domain/keys.h"
#include "domain/promise.h"
#include "domain/quantity.h"
#include "kube/list_watch.h"

/* A copy of an object. */
struct record {
    struct span key;    /* owned */
    char *strings;      /* of a node, pod or heartbeat: one allocation per record */
    struct arena arena; /* of an Scv */
    uint64_t run;       /* the list or watch that delivered it last */
    struct list link;
    union {
        struct cluster_state_node node;
        struct scv scv; /* complete, as scv_read_all returns it */
        struct cluster_state_pod pod;
        struct cluster_state_heartbeat heartbeat;
    };
};

enum {
    RECORD_TABLES = CORE_LEASES + 1, /* nodes, pods, Scvs and Leases */
    ERRORS_MAX = 256,
    CLOCK_SKEW_S = 10, /* more than synchronized clocks differ by */
};

struct record_table {
    struct map by_key;
    struct list all;
};

struct cluster_state {
    struct cluster_state_config config;
    struct core *core;
    struct step_outputs outputs;
    struct record_table tables[RECORD_TABLES];
    uint64_t changes;
    int64_t promised_ns;          /* of the newest promise */
    int64_t server_s;             /* at cluster_state_check_heartbeats; 0: unknown */
    struct err list_error;        /* of the first list that failed */
    struct err retried;           /* of the last list that is tried again */
    char *errors[ERRORS_MAX + 1]; /* ends with NULL */
    struct arena scratch;         /* for one pod */
    pthread_mutex_t lock; /* held while the ledger changes; one thread changes it */
};

/* A renewal alone changes nothing visible. */
static void note_change(struct cluster_state *cs, const struct record_table *t)
{
    if (t != &cs->tables[CORE_LEASES])
        cs->changes++;
}

static void drop(struct cluster_state *cs, struct record_table *t, struct record *r)
{
    map_remove(&t->by_key, r->key);
    list_remove(&r->link);
    note_change(cs, t);
    free((char *)r->key.p);
    free(r->strings);
    arena_fini(&r->arena);
    free(r);
}

/* An empty record for that key, which replaces the existing one; NULL if `gone`. */
static struct record *replace(struct cluster_state *cs, enum core_kind kind,
                              struct span key, uint64_t run, bool gone)
{
    struct record_table *t = &cs->tables[kind];
    struct record *r = map_get(&t->by_key, key);
    if (r)
        drop(cs, t, r);
    if (gone)
        return NULL;
    r = xcalloc(1, sizeof *r);
    r->run = run;
    r->key = (struct span){xmemdup0(key.p, key.n), key.n};
    list_prepend(&t->all, &r->link);
    note_change(cs, t);
    map_set(&t->by_key, r);
    return r;
}

/* Copies the strings of the fields, which are borrowed. */
static void own_strings(struct record *r, struct span *const *fields, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += fields[i]->n;
    char *at = r->strings = xmalloc(bytes + 1);
    for (size_t i = 0; i < n; i++) {
        if (fields[i]->n)
            memcpy(at, fields[i]->p, fields[i]->n);
        if (fields[i]->p)
            fields[i]->p = at;
        at += fields[i]->n;
    }
}

static void store_node(struct cluster_state *cs, const struct core_input *in)
{
    const struct node *n = in->node;
    struct record *r = replace(cs, CORE_NODES, n->meta.name, in->run, in->deleted);
    if (!r)
        return;
    r->node = (struct cluster_state_node){.name = r->key,
                                          .address = n->address,
                                          .capacity = n->capacity,
                                          .allocatable = n->allocatable};
    r->node.named_invalid = node_cards_named(n, &r->node.named, NULL) != 0;
    own_strings(r, (struct span *const[]){&r->node.address}, 1);
}

/* A list that repeats a renewTime is not a renewal. */
static void store_heartbeat(struct cluster_state *cs, const struct core_input *in)
{
    struct span name = in->lease->meta.name, renewed = in->lease->renew_time;
    const struct cluster_state_heartbeat *old = cluster_state_find(cs, CORE_LEASES, name);
    struct cluster_state_heartbeat heartbeat = {0};
    if (old && span_eq(old->renewed, renewed))
        heartbeat = *old;
    else if (old && old->freshness != HEARTBEAT_FRESH)
        cs->changes++;
    heartbeat.renewed = renewed; /* replace() frees `old` */
    struct record *r = replace(cs, CORE_LEASES, name, in->run, in->deleted);
    if (!r)
        return;
    r->heartbeat = heartbeat;
    own_strings(r, (struct span *const[]){&r->heartbeat.renewed}, 1);
}

static void store_pod(struct cluster_state *cs, const struct core_input *in)
{
    static const struct pod undecoded;
    const struct object_meta *meta = &in->pod->meta;
    const struct pod *pod = in->invalid ? &undecoded : in->pod;
    const struct request_rules rules = ledger_rules(&cs->config.core.ledger);
    const bool promised = (pod->idx.p || pod->allocation.p) && pod->node.n;
    struct request request;
    struct promise promise;
    struct err why = {0};
    int64_t ns;
    struct record *r = replace(cs, CORE_PODS, meta->uid, in->run, in->deleted);
    if (!r)
        return;
    if (span_i64(in->pod->assume_time, &ns) && ns > cs->promised_ns)
        cs->promised_ns = ns;
    arena_reset(&cs->scratch);
    if (request_of(pod, &rules, &cs->scratch, &request, &why) == 0 && promised &&
        !promise_of(pod, &cs->scratch, &promise))
        err_set(&why, ERR_INVALID,
                "annotations name no card: ALIYUN_COM_GPU_MEM_IDX \"%.*s\"",
                SPAN_ARG(pod->idx));
    struct cluster_state_pod *to = &r->pod;
    *to = (struct cluster_state_pod){.uid = r->key,
                                     .ns = meta->ns,
                                     .name = meta->name,
                                     .node = pod->node,
                                     .idx = pod->idx,
                                     .allocation = pod->allocation,
                                     .assigned = pod->assigned,
                                     .go_units = limits_of_go(pod),
                                     .finished = pod_is_terminal(pod),
                                     .reason = span_of(why.msg)};
    struct span *const fields[] = {&to->ns,         &to->name,     &to->node,  &to->idx,
                                   &to->allocation, &to->assigned, &to->reason};
    own_strings(r, fields, ARRAY_LEN(fields));
}

/* Drops what the complete list `run` lacks; 0: everything. */
static void sweep(struct cluster_state *cs, struct record_table *t, uint64_t run)
{
    LIST_EACH(struct record, r, &t->all, link)
    if (r->run != run)
        drop(cs, t, r);
}

/* -- Scvs: the core keeps only a part of them -- */

/* The copy is what scv_write makes of it, read again. */
static void store_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone)
{
    struct record *r = replace(ctx, CORE_SCVS, scv->meta.name, run, gone);
    cleanup_buf struct buf text = {0};
    struct jread j;
    if (!r)
        return;
    scv_write(&text, scv);
    struct span own = arena_copy(&r->arena, buf_span(&text));
    jread_init(&j, own.p, own.n);
    scv_read_all(&j, &r->arena, &r->scv);
    r->scv.damaged |= scv->damaged || jread_finish(&j, NULL);
}

const void *cluster_state_find(const struct cluster_state *cs, enum core_kind kind,
                               struct span key)
{
    const struct record *r = map_get(&cs->tables[kind].by_key, key);
    return r ? &r->node : NULL; /* of the union */
}

static int by_node_name(const void *a, const void *b)
{
    return span_cmp((*(const struct cluster_state_node *const *)a)->name,
                    (*(const struct cluster_state_node *const *)b)->name);
}

static int by_pod_name(const void *a, const void *b)
{
    const struct cluster_state_pod *x = *(const struct cluster_state_pod *const *)a;
    const struct cluster_state_pod *y = *(const struct cluster_state_pod *const *)b;
    return span_cmp(x->ns, y->ns)
               ?: span_cmp(x->name, y->name)
               ?: span_cmp(x->uid, y->uid);
}

/* The node, pod, ... of each record. */
static size_t sorted(const struct cluster_state *cs, enum core_kind kind, struct arena *a,
                     const void ***out, int (*compare)(const void *, const void *))
{
    const struct record_table *t = &cs->tables[kind];
    size_t n = 0;
    *out = arena_alloc(a, t->by_key.n * sizeof **out);
    LIST_EACH(const struct record, r, &t->all, link)
    (*out)[n++] = &r->node; /* of the union */
    if (n)
        qsort(*out, n, sizeof **out, compare);
    return n;
}

size_t cluster_state_nodes(const struct cluster_state *cs, struct arena *a,
                           const struct cluster_state_node ***out)
{
    return sorted(cs, CORE_NODES, a, (const void ***)out, by_node_name);
}

size_t cluster_state_pods(const struct cluster_state *cs, struct arena *a,
                          const struct cluster_state_pod ***out)
{
    return sorted(cs, CORE_PODS, a, (const void ***)out, by_pod_name);
}

const char *const *cluster_state_errors(const struct cluster_state *cs)
{
    return (const char *const *)cs->errors;
}

static void step(struct cluster_state *cs, const struct core_input *in)
{
    step_outputs_reset(&cs->outputs);
    core_step(cs->core, step_now(), in, &cs->outputs);
    STEP_EACH(struct core_output, o, &cs->outputs)
    if (o->type == CORE_LIST || o->type == CORE_WATCH) /* an observer needs no other */
        cs->config.request(cs->config.ctx, o);
}

static void on_input(void *ctx, const struct core_input *in)
{
    struct cluster_state *cs = ctx;
    pthread_mutex_lock(&cs->lock);
    bool absent = in->type == CORE_LIST_FAILED && in->err->code == ERR_NOT_FOUND &&
                  (in->kind == CORE_SCVS || in->kind == CORE_LEASES);
    if (in->type == CORE_OBJECT && in->kind == CORE_NODES)
        store_node(cs, in);
    else if (in->type == CORE_OBJECT && in->kind == CORE_PODS)
        store_pod(cs, in);
    else if (in->type == CORE_OBJECT && in->kind == CORE_LEASES)
        store_heartbeat(cs, in);
    else if ((in->type == CORE_LIST_ENDED || absent) && (int)in->kind < RECORD_TABLES)
        sweep(cs, &cs->tables[in->kind], in->run);
    else if (in->type == CORE_LIST_FAILED && !absent && cs->list_error.code == ERR_NONE) {
        /* As client-go: what the server asks to repeat, and a list that became too old. A list
         * without a byte for long may wait for a login. */
        bool again = in->retry_after_ms >= 0 || in->err->code == ERR_GONE ||
                     in->err->code == ERR_TIMEOUT;
        struct err *to = again ? &cs->retried : &cs->list_error;
        *to = *in->err;
        err_wrap(to, "list of %s", core_kind_name(in->kind));
    }
    step(cs, in);
    pthread_mutex_unlock(&cs->lock);
}

static void on_error(void *ctx, const struct err *err)
{
    struct cluster_state *cs = ctx;
    char **at = cs->errors;
    while (*at && strcmp(*at, err->msg) != 0)
        at++;
    if (*at || at == cs->errors + ERRORS_MAX)
        return;
    *at = xstrdup(err->msg);
    cs->changes++;
}

const struct apisync_sink cluster_state_sink = {on_input, on_error, store_scv};

struct cluster_state *cluster_state_new(const struct cluster_state_config *config)
{
    struct cluster_state *cs = xcalloc(1, sizeof *cs);
    pthread_mutex_init(&cs->lock, NULL);
    cs->config = *config;
    cs->config.core.observer = true;
    cs->config.core.ledger.keep_terms = true; /* for defrag */
    cs->core = core_new(&cs->config.core);
    for (int kind = 0; kind < RECORD_TABLES; kind++) {
        list_init(&cs->tables[kind].all);
        map_init(&cs->tables[kind].by_key, config->core.seed,
                 offsetof(struct record, key));
    }
    return cs;
}

void cluster_state_free(struct cluster_state *cs)
{
    if (!cs)
        return;
    for (struct record_table *t = cs->tables; t < cs->tables + RECORD_TABLES; t++) {
        sweep(cs, t, 0);
        map_fini(&t->by_key);
    }
    step_outputs_fini(&cs->outputs);
    core_free(cs->core);
    for (char **at = cs->errors; *at; at++)
        free(*at);
    arena_fini(&cs->scratch);
    pthread_mutex_destroy(&cs->lock);
    free(cs);
}

void cluster_state_tick(struct cluster_state *cs)
{
    pthread_mutex_lock(&cs->lock);
    step(cs, &(struct core_input){.type = CORE_TICK});
    pthread_mutex_unlock(&cs->lock);
}

static void set_silence(struct cluster_state *cs, struct span node, int64_t stale_s)
{
    step(cs, &(struct core_input){
                 .type = CORE_HEARTBEAT_STALE, .node_name = node, .stale_s = stale_s});
    cs->changes++;
}

void cluster_state_check_heartbeats(struct cluster_state *cs, int64_t server_s,
                                    int64_t since_s)
{
    if (cs->config.core.node_grace_ms <= 0)
        return;
    cs->server_s = server_s;
    LIST_EACH(struct record, r, &cs->tables[CORE_LEASES].all, link)
    {
        struct cluster_state_heartbeat *h = &r->heartbeat;
        int64_t renewed_s;
        if (server_s <= 0) {
            h->freshness = HEARTBEAT_NO_CLOCK;
        } else if (!clock_parse(h->renewed, &renewed_s)) {
            h->freshness = HEARTBEAT_UNDATED;
        } else {
            h->age_s = server_s - renewed_s;
            if (-h->age_s > since_s + CLOCK_SKEW_S)
                h->freshness = HEARTBEAT_AHEAD;
            /* Both times are truncated to seconds. */
            if ((h->age_s - 1) * 1000 >= cs->config.core.node_grace_ms) {
                h->freshness = HEARTBEAT_OLD;
                set_silence(cs, r->key, h->age_s);
            }
        }
    }
}

int cluster_state_check_ready(const struct cluster_state *cs, struct err *err)
{
    if (core_ready(cs->core, step_now(), NULL) == 0)
        return 0;
    *err = cs->list_error;
    return -1;
}

static const struct core *read_core(void *ctx)
{
    struct cluster_state *cs = ctx;
    pthread_mutex_lock(&cs->lock);
    return cs->core;
}

static void end_read(void *ctx)
{
    struct cluster_state *cs = ctx;
    pthread_mutex_unlock(&cs->lock);
}

struct view_source cluster_state_source(const struct cluster_state *cs)
{
    return (struct view_source){
        .read = read_core, .read_end = end_read, .ctx = (void *)cs, .observer = true};
}

const struct ledger *cluster_state_ledger(const struct cluster_state *cs)
{
    return core_ledger(cs->core);
}

uint64_t cluster_state_generation(const struct cluster_state *cs)
{
    return cs->changes + ledger_generation(core_ledger(cs->core));
}

/* The extender also knows of Leases that were deleted. */
static bool is_unclear(const struct cluster_state *cs, const struct ledger_node *node)
{
    const struct cluster_state_heartbeat *h =
        cluster_state_find(cs, CORE_LEASES, node->name);
    if (node->source != SOURCE_SCV)
        return false;
    return !h || h->freshness != HEARTBEAT_FRESH;
}

bool cluster_state_needs_view(const struct cluster_state *cs)
{
    const struct ledger *l = cluster_state_ledger(cs);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (node && is_unclear(cs, node))
            return true;
    }
    return false;
}

/* The extender, which watches Leases, knows for how many seconds there was no renewal. A node
 * that it rejects for another reason says nothing of its heartbeat. */
void cluster_state_apply_view(struct cluster_state *cs, const json_t *view)
{
    const json_t *item;
    size_t i;
    if (!jpath_text(view, "unit").n || json_object_get(view, "error") ||
        json_object_get(view, "staleReason"))
        return;
    json_array_foreach(json_object_get(view, "nodes"), i, item)
    {
        struct span name = jpath_text(item, "name");
        const struct ledger_node *node = ledger_node_find(cluster_state_ledger(cs), name);
        struct record *r = map_get(&cs->tables[CORE_LEASES].by_key, name);
        int64_t silence = jpath_number(item, "heartbeatAgeSeconds");
        if (!node || !is_unclear(cs, node) ||
            (silence <= 0 && jpath_text(item, "reason").n))
            continue;
        if (r)
            r->heartbeat.confirmed = silence <= 0;
        if (r && silence > 0 && r->heartbeat.age_s > silence)
            silence = r->heartbeat.age_s;
        set_silence(cs, node->name, silence > 0 ? silence : 0);
    }
}

void cluster_state_note_heartbeat(struct buf *out, const struct cluster_state *cs,
                                  const struct ledger_node *node)
{
    const struct cluster_state_heartbeat *h =
        cluster_state_find(cs, CORE_LEASES, node->name);
    const struct scv *s = cluster_state_find(cs, CORE_SCVS, node->name);
    if (node->source == SOURCE_SCV && !h && s && s->has_update_time &&
        s->driver_version.n && /* the SCV daemon has no Lease and writes none */
        (cs->server_s - s->update_time) * 1000 > cs->config.core.node_grace_ms) {
        buf_adds(out, "no Lease of scv-agent; its Scv is of ");
        clock_format_s(out, s->update_time);
    }
    if (!h || node->source != SOURCE_SCV)
        return;
    static const char *const unknown[] = {
        [HEARTBEAT_FRESH] = "",
        [HEARTBEAT_UNDATED] = "Lease has no valid renewTime; cannot tell whether "
                              "scv-agent is running",
        [HEARTBEAT_NO_CLOCK] = "the API server sent no Date header; cannot tell from the "
                               "Lease whether scv-agent is running"};
    const bool old = h->freshness == HEARTBEAT_OLD;
    const char *why = h->confirmed ? "; the extender receives renewals: check the node's "
                                     "clock"
                      : old        ? ", or the node's clock is behind"
                                   : "; cannot tell whether scv-agent is running";
    if (old && !h->confirmed && ledger_node_info(node).foreign)
        return; /* the node's reason names the Lease's owner and time */
    if (!old && node->state == NODE_STALE)
        return;
    if (old || h->freshness == HEARTBEAT_AHEAD)
        table_text(
            out, "Lease last renewed at %.*s, %" PRId64 " s %s the API server's clock%s",
            SPAN_ARG(h->renewed), old ? h->age_s : -h->age_s, old ? "ago by" : "ahead of",
            why);
    else if (!h->confirmed)
        buf_adds(out, unknown[h->freshness]);
}

/* -- lists and watches -- */

static void stop(struct session *s)
{
    list_watch_loop_free(s->loop);
    apisync_streams_fini(&s->streams);
    cluster_state_free(s->state);
    s->loop = NULL;
    s->state = NULL;
}

/* Runs until the next timer or I/O, at most until `until_ms`. */
static void run_loop(struct session *s, int64_t until_ms)
{
    cluster_state_tick(s->state);
    int64_t due = core_due(s->state->core), now = clock_mono_ms();
    if (due > until_ms)
        due = until_ms;
    list_watch_loop_run(s->loop, due > now ? due - now : 0);
}

void session_wait(struct session *s, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    uint64_t seen = cluster_state_generation(s->state);
    do
        run_loop(s, until_ms);
    while (clock_mono_ms() < until_ms && cluster_state_generation(s->state) == seen);
}

int session_check_current(struct session *s, struct err *err)
{
    enum { EXPIRED_S = 10 }; /* lists are tried again, with new credentials */
    cleanup_buf struct buf text = {0};
    bool expired = false;
    struct err why;
    struct tm at;
    int64_t since_ns;
    if (s->kubectl && kubectl_check(s->kubectl, 0, err))
        return -1;
    if (core_current(s->state->core, step_now(), &since_ns, &why)) {
        char clock[sizeof "HH:MM:SS"];
        localtime_r(&(time_t){since_ns / 1000000000}, &at);
        strftime(clock, sizeof clock, "%T", &at);
        buf_printf(&text, "as of %s: %s", clock, why.msg);
        expired = why.code == ERR_UNAUTHORIZED &&
                  clock_wall_ns() - since_ns > EXPIRED_S * INT64_C(1000000000);
    }
    bool changed = !span_eq(buf_span(&text), buf_span(&s->stale));
    buf_set(&s->stale, buf_span(&text));
    if (changed)
        fprintf(stderr, "%s: %s\n", cli_program.name,
                text.n ? text.p : "the watches work again");
    return expired ? err_set(err, ERR_UNAUTHORIZED, "the login has expired") : changed;
}

/* -- the extender's view -- */

#define LEASE   "gpushare-extender"
#define SERVICE "gpushare-schd-extender"

static bool has_extender(const struct cli_config *c)
{
    return c->extender && strcmp(c->extender, "none");
}

/* "kube-system/gpushare-schd-extender:12345". False: --extender is of another form, and
 * *ns empty. */
static bool names_service(const struct cli_config *c, struct span *ns,
                          struct span *service)
{
    struct span rest = span_of(c->extender), first = span_cut(&rest, '/');
    *service = rest;
    struct span name = span_cut(&rest, ':');
    bool is = first.n && name.n && rest.n && !memchr(service->p, '/', service->n);
    *ns = is ? first : (struct span){0};
    return is;
}

int session_check_extender(const struct cli_config *c, struct err *err)
{
    struct span ns, service, address = span_of(c->extender);
    bool https = span_starts(address, SPAN("https://"));
    if (c->extender && !has_extender(c))
        return 0;
    if (c->extender_token && !https)
        return err_set(err, ERR_INVALID,
                       "--extender-token needs --extender https://HOST:PORT");
    if (!c->extender || https || span_starts(address, SPAN("http://")) ||
        names_service(c, &ns, &service))
        return 0;
    return err_set(err, ERR_INVALID,
                   "--extender: invalid address \"%s\"; expected http://HOST:PORT, "
                   "https://HOST:PORT or NAMESPACE/SERVICE:PORT",
                   c->extender);
}

json_t *session_call_extender(struct kube_client *client, const struct cli_config *c,
                              int64_t timeout_ms, struct err *err)
{
    cleanup_reply struct httpc_reply reply = {0};
    cleanup_buf struct buf path = {0};
    struct span ns, service, base = span_of(c->extender);
    struct kube_client *own = NULL;
    if (!has_extender(c))
        return NULL;
    if (names_service(c, &ns, &service)) { /* by the API server */
        buf_adds(&path, "/api/v1/namespaces/");
        list_watch_escape(&path, ns);
        buf_adds(&path, "/services/");
        list_watch_escape(&path, service);
        buf_adds(&path, "/proxy");
    } else {
        while (base.n && base.p[base.n - 1] == '/')
            base.n--;
        cleanup_free char *url = xmemdup0(base.p, base.n);
        client = own = kube_client_at(url, c->extender_ca, c->extender_token, err);
        if (!own)
            return NULL;
    }
    buf_adds(&path, "/gpushare-scheduler/inspect");
    const struct kube_request request = {
        .method = "GET", .path = path.p, .gzip = true, .timeout_ms = timeout_ms};
    int rc = kube_ask(client, &request, &reply, err);
    kube_client_free(own);
    return rc ? NULL : jpath_read(buf_span(&reply.body), err);
}

enum { GIB = 1024 };

bool session_counts_mib(const struct node_resources *capacity)
{
    enum { CARD_MAX_GIB = 1024 };
    return capacity->cards > 0 && capacity->mem / capacity->cards > CARD_MAX_GIB;
}

int64_t session_unit_of_cluster(const struct cluster_state *cs)
{
    bool mib = false;
    LIST_EACH(const struct record, r, &cs->tables[CORE_NODES].all, link)
    mib |= session_counts_mib(&r->node.capacity);
    return mib ? 1 : GIB;
}

enum {
    OPTIONAL_VIEW_MS = 2000, /* timeout of a view that the output does not depend on */
};

const json_t *session_view(struct session *s)
{
    if (!s->view_fetched)
        s->view =
            session_call_extender(s->client, s->config, OPTIONAL_VIEW_MS, &s->view_error);
    s->view_fetched = true;
    return s->view;
}

/* -- is an extender there? -- */

enum {
    UNRENEWED_S = 30,     /* of a Lease that is renewed twice a second; clocks differ */
    FILTER_IDLE_MIN = 10, /* kube-scheduler retries every pod within five minutes */
    REJECTED_S = 3600,    /* Events are kept for an hour, unless configured */
};

bool cluster_state_write_outage(struct buf *out, const struct cluster_state *cs,
                                const struct session_extender *e, int64_t now_s)
{
    const size_t before = out->n;
    const json_t *spec = json_object_get(e->lease, "spec"), *slice, *endpoint, *event;
    const char *why = NULL; /* the last pod that was bound past the extender failed */
    struct span last = {0};
    size_t i, k, ready = 0;
    int64_t renewed_s = 0, last_s, idle = jpath_number(e->view, "filterIdleMinutes");
    json_array_foreach(json_object_get(e->slices, "items"), i, slice)
    {
        json_array_foreach(json_object_get(slice, "endpoints"), k, endpoint)
        {
            ready += !json_is_false(jpath(endpoint, "conditions.ready"));
        }
    }
    /* Without a slice there is no Service: the extender is reached in another way. */
    if (json_array_size(json_object_get(e->slices, "items")) && !ready)
        table_line(out, "! Service " SERVICE
                        " has no ready endpoint: kube-scheduler reaches no "
                        "extender");
    if (e->no_lease)
        table_line(out, "! no extender runs: there is no Lease " LEASE);
    else if (spec && !jpath_text(spec, "holderIdentity").n)
        table_line(out, "! no extender leads: nobody holds Lease %.*s/" LEASE,
                   SPAN_ARG(e->ns));
    else if (spec && clock_parse(jpath_text(spec, "renewTime"), &renewed_s) &&
             now_s - renewed_s > UNRENEWED_S)
        table_line(out,
                   "! no extender leads: Lease %.*s/" LEASE " was renewed %" PRId64
                   " s ago",
                   SPAN_ARG(e->ns), now_s - renewed_s);
    json_array_foreach(json_object_get(e->rejected, "items"), i, event)
    {
        struct span time = jpath_text(event, "eventTime");
        const char *note = json_string_value(json_object_get(event, "note"));
        if (note && strstr(note, KEY_NO_PROMISE) && span_cmp(time, last) > 0) {
            last = time;
            why = note;
        }
    }
    if (why && clock_parse(last, &last_s) && last_s >= now_s - REJECTED_S &&
        last_s > cs->promised_ns / 1000000000)
        table_line(out, "! the extender was not asked at %.*s: %s", SPAN_ARG(last), why);
    bool outage = out->n > before;
    if (json_is_true(json_object_get(e->view, "leader")) && idle >= FILTER_IDLE_MIN &&
        ledger_totals(cluster_state_ledger(cs)).pending)
        table_line(
            out,
            "! kube-scheduler has not called filter for %" PRId64
            " minutes, although pods are pending: its own filters leave no node, or "
            "it does not know the extender",
            idle);
    return outage;
}

json_t *session_get(const struct session *s, const char *path, struct err *err)
{
    enum { WAIT_MAX_S = 60 };
    int64_t limit_ms = s->config->timeout_ms, from_ms = clock_mono_ms();
    const struct kube_request request = {
        .method = "GET", .path = path, .gzip = true, .timeout_ms = limit_ms};
    for (;;) {
        cleanup_reply struct httpc_reply reply = {0};
        if (kube_ask(s->client, &request, &reply, err) == 0)
            return jpath_read(buf_span(&reply.body), err);
        int64_t after_s = reply.retry_after_s;
        int64_t wait_ms = 1000 * (after_s < 1            ? 1
                                  : after_s < WAIT_MAX_S ? after_s
                                                         : WAIT_MAX_S);
        if (after_s < 0 || (limit_ms && clock_mono_ms() + wait_ms >= from_ms + limit_ms))
            return NULL;
        poll(NULL, 0, (int)wait_ms);
    }
}

json_t *session_list(const struct session *s, const char *path, struct err *err)
{
    cleanup_buf struct buf call = {0};
    json_auto_t *all = NULL;
    bool more = true, restarted = false;
    buf_printf(&call, "%s?limit=500", path);
    while (more) {
        json_auto_t *list = session_get(s, call.p, err);
        bool gone = !list && err->code == ERR_GONE && !restarted;
        if (!list && !gone)
            return NULL;
        struct span next = jpath_text(list, "metadata.continue");
        buf_clear(&call);
        buf_printf(&call, "%s?limit=500%s", path, next.n ? "&continue=" : "");
        list_watch_escape(&call, next);
        more = gone || next.n;
        restarted |= gone;
        if (gone) /* the continue token has expired */
            json_decref(steal(&all));
        else if (all)
            json_array_extend(json_object_get(all, "items"),
                              json_object_get(list, "items"));
        else
            all = steal(&list);
    }
    return steal(&all);
}

/* A list in the namespace; if that is empty, in all. */
static json_t *list_in(const struct session *s, const char *group, struct span ns,
                       const char *rest)
{
    cleanup_buf struct buf path = {0};
    buf_printf(&path, "/apis/%s/v1/%s", group, ns.n ? "namespaces/" : "");
    list_watch_escape(&path, ns);
    buf_printf(&path, "%s%s", ns.n ? "/" : "", rest);
    return session_get(s, path.p, NULL);
}

bool session_write_outage(struct buf *out, struct session *s, const json_t *view)
{
    struct session_extender e = {.view = view};
    struct span service;
    size_t i;
    json_t *lease;
    names_service(s->config, &e.ns, &service);
    json_auto_t *leases = list_in(s, "coordination.k8s.io", e.ns,
                                  "leases?fieldSelector=metadata.name=" LEASE);
    e.no_lease = leases && !json_array_size(json_object_get(leases, "items"));
    /* Of several, as of a release that is gone, the one that was renewed last. */
    json_array_foreach(json_object_get(leases, "items"), i, lease)
    {
        if (!e.lease || span_cmp(jpath_text(lease, "spec.renewTime"),
                                 jpath_text(e.lease, "spec.renewTime")) > 0)
            e.lease = lease;
    }
    if (e.lease)
        e.ns = jpath_text(e.lease, "metadata.namespace");
    json_auto_t *slices = e.slices =
        list_in(s, "discovery.k8s.io", e.ns,
                "endpointslices?labelSelector=kubernetes.io/service-name=" SERVICE);
    json_auto_t *rejected = e.rejected =
        list_in(s, "events.k8s.io", (struct span){0},
                "events?limit=500&fieldSelector=reason=GPUAllocationFailed");
    return cluster_state_write_outage(out, s->state, &e, clock_wall_ns() / 1000000000);
}

static void start_request(void *ctx, const struct core_output *request)
{
    struct session *s = ctx;
    apisync_streams_start(s->loop, request);
}

static int load_cluster(struct session *s, int64_t unit_mib,
                        const struct dialect *dialect, struct err *err)
{
    const struct cli_config *c = s->config;
    const struct cluster_state_config config = {
        .core = {.ledger = {.unit_mib = unit_mib,
                            .external_tolerance_mib = c->external_tolerance_mib,
                            .require_scv = c->require_scv,
                            .require_node = true,
                            .clock_exact = c->clock_exact,
                            .number_shares = c->number_shares,
                            .dialect = dialect},
                 .node_grace_ms = c->node_grace_ms,
                 .only_pods = c->classic,
                 .seed = (uint64_t)clock_wall_ns()},
        .request = start_request,
        .ctx = s,
    };
    stop(s);
    s->state = cluster_state_new(&config);
    s->streams = (struct apisync_streams){
        .sink = &cluster_state_sink, .ctx = s->state, .gzip = true};
    s->loop =
        list_watch_loop_new(s->client, CORE_ALL_KINDS, &apisync_streams_fns, &s->streams);
    int64_t from_ms = clock_mono_ms();
    while (cluster_state_check_ready(s->state, err)) {
        if (err->code == ERR_UNAVAILABLE && s->kubectl)
            kubectl_explain(s->kubectl, err);
        if (err->code != ERR_NONE)
            return -1;
        if (clock_mono_ms() >= s->until_ms)
            return err_set(err, ERR_TIMEOUT,
                           "the API server did not list all objects within "
                           "--request-timeout %lld s%s%s",
                           (long long)(c->timeout_ms / 1000),
                           s->state->retried.code ? ": " : "", s->state->retried.msg);
        run_loop(s, s->until_ms);
    }
    if (s->kubectl)
        kubectl_answered(s->kubectl);
    cluster_state_check_heartbeats(s->state, list_watch_loop_date_s(s->loop, CORE_LEASES),
                                   (clock_mono_ms() - from_ms + 999) / 1000);
    return 0;
}

int session_connect(struct session *s, struct err *err)
{
    const struct cli_config *c = s->config;
    s->until_ms = c->timeout_ms ? clock_mono_ms() + c->timeout_ms : INT64_MAX;
    if (kubectl_start(c, s->until_ms, &s->kubectl, err))
        return -1;
    s->client = s->kubectl ? kube_client_proxied(kubectl_socket(s->kubectl), err)
                           : kube_connect_in(c->kubeconfig, c->context, &s->ns, err);
    return s->client ? 0 : s->kubectl ? -1 : err_wrap(err, "without kubectl");
}

int session_reconnect(struct session *s, struct err *err)
{
    enum { WAIT_MS = 1000 };
    if (!s->kubectl || kubectl_check(s->kubectl, WAIT_MS, NULL) == 0)
        return -1;
    stop(s);
    kube_client_free(steal(&s->client));
    kubectl_free(steal(&s->kubectl));
    return session_connect(s, err);
}

const char *session_namespace(struct session *s, struct err *err)
{
    if (s->config->ns)
        return s->config->ns;
    if (!s->ns && !(s->ns = kubectl_namespace(s->kubectl, err)))
        err_wrap(err, "the namespace is unknown, see --namespace");
    return s->ns;
}

int session_load(struct session *s, struct err *err)
{
    const struct cli_config *c = s->config;
    if (session_check_extender(c, err))
        return -1;
    if (session_connect(s, err) || load_cluster(s, c->unit_mib ?: GIB, NULL, err))
        return -1;
    if (c->classic) /* uses nodes and pods only */
        return 0;
    int64_t unit = c->unit_mib ?: session_unit_of_cluster(s->state);
    const struct ledger *l = cluster_state_ledger(s->state);
    const struct dialect *dialect = NULL;
    /* Nodes of the dialect are for an extender that reads its requests, and knows its
     * names. */
    for (uint32_t i = 0; i < ledger_node_slots(l) && !dialect; i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (!node || node->dialect == SCV_DIALECT_NONE)
            continue;
        dialect = &s->hami;
        s->hami = dialect_hami;
        if (dialect_configure(&s->hami, jpath_text(session_view(s), "hamiValues"), NULL))
            s->hami = dialect_hami; /* of a newer extender */
    }
    if ((unit != (c->unit_mib ?: GIB) || dialect) && load_cluster(s, unit, dialect, err))
        return -1; /* all requests depend on these: everything is listed again */
    if (c->node_grace_ms && cluster_state_needs_view(s->state))
        cluster_state_apply_view(s->state, session_view(s));
    return 0;
}

void session_fini(struct session *s)
{
    buf_fini(&s->stale);
    stop(s);
    json_decref(s->view);
    kube_client_free(s->client);
    kubectl_free(s->kubectl);
    free(s->ns);
}

void session_pod_path(struct buf *path, struct span ns, struct span name)
{
    buf_adds(path, "/api/v1/namespaces/");
    list_watch_escape(path, ns);
    buf_adds(path, "/pods/");
    list_watch_escape(path, name);
}
