/* SPDX-License-Identifier: Apache-2.0 */

/* A run against a cluster: lists and watches, the extender's view, the memory unit. */

#include "cli/session.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "apisync/apisync.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/table.h"
#include "domain/quantity.h"
#include "kube/client.h"
#include "kube/list_watch.h"

struct session_cluster {
    struct cluster_state *state;
    struct apisync_streams streams;
    struct list_watch_loop *loop;
    pthread_mutex_t lock; /* held while the state changes; only this thread changes it */
};

static void on_input(void *ctx, const struct core_input *in)
{
    struct session_cluster *c = ctx;
    pthread_mutex_lock(&c->lock);
    cluster_state_sink.input(c->state, in);
    pthread_mutex_unlock(&c->lock);
}

/* Faults and Scvs change copies of the objects, which other threads do not read. */
static void on_fault(void *ctx, const struct err *err)
{
    struct session_cluster *c = ctx;
    cluster_state_sink.fault(c->state, err);
}

static void on_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone)
{
    struct session_cluster *c = ctx;
    cluster_state_sink.scv(c->state, scv, run, gone);
}

static const struct apisync_sink sink = {on_input, on_fault, on_scv};

static struct session_cluster *cluster_new(const struct cluster_state_config *config,
                                           struct kube_client *client)
{
    struct session_cluster *c = xcalloc(1, sizeof *c);
    c->state = cluster_state_new(config);
    pthread_mutex_init(&c->lock, NULL);
    c->streams = (struct apisync_streams){.sink = &sink, .ctx = c, .gzip = true};
    c->loop = list_watch_loop_new(client, CORE_KINDS, &apisync_streams_fns, &c->streams);
    return c;
}

static void cluster_free(struct session_cluster *c)
{
    if (!c)
        return;
    list_watch_loop_free(c->loop);
    apisync_streams_fini(&c->streams);
    cluster_state_free(c->state);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void start_requests(struct session_cluster *c)
{
    cleanup_free struct core_output *request = NULL;
    while (free(request), (request = cluster_state_take_request(c->state)))
        apisync_streams_start(c->loop, request);
}

/* Runs until the next timer or I/O, at most until `until_ms`. */
static void run_loop(struct session_cluster *c, int64_t until_ms)
{
    pthread_mutex_lock(&c->lock);
    cluster_state_tick(c->state);
    pthread_mutex_unlock(&c->lock);
    start_requests(c);
    int64_t due = cluster_state_due(c->state), now = clock_mono_ms();
    if (due > until_ms)
        due = until_ms;
    list_watch_loop_run(c->loop, due > now ? due - now : 0);
}

static int cluster_load(struct session_cluster *c, int64_t timeout_ms, struct err *err)
{
    int64_t from_ms = clock_mono_ms(), until_ms = from_ms + timeout_ms;
    struct err why;
    while (cluster_state_check_ready(c->state, &why)) {
        if (why.code != ERR_NONE) {
            *err = why;
            return -1;
        }
        if (clock_mono_ms() >= until_ms)
            return err_set(err, ERR_TIMEOUT,
                           "the API server did not list all objects within %lld s",
                           (long long)(timeout_ms / 1000));
        run_loop(c, until_ms);
    }
    cluster_state_check_heartbeats(c->state, list_watch_loop_date_s(c->loop, CORE_LEASES),
                                   (clock_mono_ms() - from_ms + 999) / 1000);
    return 0;
}

void session_wait(struct session *s, int64_t ms)
{
    struct session_cluster *c = s->cluster;
    int64_t until_ms = clock_mono_ms() + ms;
    uint64_t seen = cluster_state_generation(c->state);
    do
        run_loop(c, until_ms);
    while (clock_mono_ms() < until_ms && cluster_state_generation(c->state) == seen);
}

static const struct core *read_core(void *ctx)
{
    struct session_cluster *c = ctx;
    pthread_mutex_lock(&c->lock);
    return cluster_state_core(c->state);
}

static void end_read(void *ctx)
{
    struct session_cluster *c = ctx;
    pthread_mutex_unlock(&c->lock);
}

struct view_source session_source(struct session *s)
{
    return (struct view_source){
        .read = read_core, .read_end = end_read, .ctx = s->cluster, .observer = true};
}

enum { FILE_MAX_BYTES = 1 << 20 };

#define INSPECT "/gpushare-scheduler/inspect"

static bool is_url(const char *address)
{
    return span_starts(span_of(address), SPAN("http://")) ||
           span_starts(span_of(address), SPAN("https://"));
}

/* "kube-system/gpushare-schd-extender:12345" */
static bool parse_service(const char *address, struct span *ns, struct span *service)
{
    struct span rest = span_of(address), name;
    *ns = span_cut(&rest, '/');
    *service = rest;
    name = span_cut(&rest, ':');
    return ns->n && name.n && rest.n && !memchr(service->p, '/', service->n);
}

static int check_address(const char *address, struct err *err)
{
    struct span ns, service;
    if (is_url(address) || parse_service(address, &ns, &service))
        return 0;
    return err_set(err, ERR_INVALID,
                   "invalid address \"%s\"; expected http://HOST:PORT, https://HOST:PORT "
                   "or NAMESPACE/SERVICE:PORT",
                   address);
}

int session_check_extender(const struct session_extender *from, struct err *err)
{
    if (check_address(from->address, err))
        return -1;
    if (from->token_file && !span_starts(span_of(from->address), SPAN("https://")))
        return err_set(
            err, ERR_INVALID,
            "a bearer token needs an address https://HOST:PORT, because others "
            "could read it on the way");
    return 0;
}

static void wipe(struct buf *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
    buf_fini(b);
}

static int read_files(const struct session_extender *from, struct buf *authorization,
                      struct buf *ca, struct err *err)
{
    buf_adds(authorization, "Bearer ");
    if (from->token_file &&
        file_read(from->token_file, FILE_MAX_BYTES, authorization, err))
        return -1;
    while (authorization->n && strchr(" \r\n\t", authorization->p[authorization->n - 1]))
        authorization->p[--authorization->n] = '\0';
    return from->ca_file ? file_read(from->ca_file, FILE_MAX_BYTES, ca, err) : 0;
}

static int call_url(const struct session_extender *from, int64_t timeout_ms,
                    struct httpc_reply *reply, struct err *err)
{
    struct span base = span_of(from->address);
    struct buf authorization = {0};
    cleanup_buf struct buf ca = {0};
    while (base.n && base.p[base.n - 1] == '/')
        base.n--;
    cleanup_free char *clean = xmemdup0(base.p, base.n);
    int rc = read_files(from, &authorization, &ca, err);
    const struct httpc_config config = {.url = clean,
                                        .ca_pem = buf_span(&ca),
                                        .user_agent = "kubectl-inspect-gpushare",
                                        .connect_ms = timeout_ms};
    const struct httpc_request request = {.method = "GET",
                                          .path = INSPECT,
                                          .authorization =
                                              from->token_file ? authorization.p : NULL,
                                          .timeout_ms = timeout_ms,
                                          .gzip = true};
    struct httpc *http = rc ? NULL : httpc_new(&config, err);
    rc = http ? httpc_call(http, &request, KUBE_MAX_BODY, reply, err) : -1;
    httpc_free(http);
    wipe(&authorization);
    return rc;
}

static int call_service(struct kube_client *client, const char *address,
                        int64_t timeout_ms, struct httpc_reply *reply, struct err *err)
{
    cleanup_buf struct buf path = {0};
    struct span ns, service;
    if (!parse_service(address, &ns, &service))
        return check_address(address, err);
    buf_adds(&path, "/api/v1/namespaces/");
    list_watch_escape(&path, ns);
    buf_adds(&path, "/services/");
    list_watch_escape(&path, service);
    buf_adds(&path, "/proxy" INSPECT);
    const struct kube_request request = {
        .method = "GET", .path = path.p, .gzip = true, .timeout_ms = timeout_ms};
    return kube_call(client, &request, reply, err);
}

/* An error of the extender is {"error": "..."}, one of the API server a Status object. */
static int check_reply(const struct httpc_reply *reply, struct err *err)
{
    struct span body = buf_span(&reply->body);
    if (kube_reply_check(reply->status, body, err) == 0)
        return 0;
    json_t *j = body.n ? json_loadb(body.p, body.n, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(j, "error"));
    cleanup_buf struct buf shown = {0};
    table_plain(&shown, span_of(text ? text : ""));
    if (text)
        err_set(err, err->code, "HTTP %u: %.*s", reply->status,
                SPAN_ARG(buf_span(&shown)));
    json_decref(j);
    return -1;
}

json_t *session_call_extender(struct kube_client *client,
                              const struct session_extender *from, int64_t timeout_ms,
                              struct err *err)
{
    const char *address = from->address;
    struct httpc_reply reply = {0};
    json_error_t bad;
    json_t *view = NULL;
    int rc = is_url(address) ? call_url(from, timeout_ms, &reply, err)
                             : call_service(client, address, timeout_ms, &reply, err);
    if (rc == 0)
        rc = check_reply(&reply, err);
    if (rc == 0 &&
        !(view = json_loadb(reply.body.n ? reply.body.p : "", reply.body.n, 0, &bad)))
        err_set(err, ERR_INVALID, "the response is not JSON: %s", bad.text);
    httpc_reply_fini(&reply);
    return view;
}

enum {
    GIB = 1024,
    CARD_MAX = 1024, /* units of a card; no GPU has more than 1 TiB */
};

/* Sum over the node's cards, each rounded down to whole units. */
static int64_t units_of(const struct ledger_node *node, int64_t mib)
{
    int64_t units = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        units += node->cards[i].total_mib / mib;
    return units;
}

/* Can the node's capacity be compared with the cards of its Scv? */
static bool is_comparable(const struct ledger_node *node,
                          const struct cluster_state_node *object)
{
    return object && object->capacity.mem > 0 && node->source == SOURCE_SCV &&
           node->state != NODE_SCV_DAMAGED && units_of(node, 1) > 0 &&
           (object->capacity.cards <= 0 || object->capacity.cards == node->n_cards);
}

/* How many nodes' capacities match a unit, and how many do not. */
struct votes {
    size_t yes, no;
};

static struct votes count(const struct cluster_state *cs, int64_t mib)
{
    const struct ledger *l = cluster_state_ledger(cs);
    struct votes votes = {0};
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        const struct cluster_state_node *object =
            node ? cluster_state_node(cs, node->name) : NULL;
        if (!node || !is_comparable(node, object))
            continue;
        bool yes = object->capacity.mem == units_of(node, mib);
        votes.yes += yes;
        votes.no += !yes;
    }
    return votes;
}

/* A fraction of a GiB, such as 256MiB, that matches all nodes. Multiples are not tried: a
 * capacity that is too small may also be one where a card is missing. */
static bool find_fraction(const struct cluster_state *cs, int64_t *mib)
{
    for (int64_t unit = GIB / 2; unit > 1; unit /= 2) {
        struct votes votes = count(cs, unit);
        if (!votes.yes || votes.no)
            continue;
        *mib = unit;
        return true;
    }
    return false;
}

/* Without an Scv, only the capacity itself can rule GiB out. */
static bool is_beyond_gib(const struct cluster_state *cs)
{
    const struct ledger *l = cluster_state_ledger(cs);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        const struct cluster_state_node *object =
            node ? cluster_state_node(cs, node->name) : NULL;
        if (object && node->source == SOURCE_CAPACITY && object->capacity.cards > 0 &&
            object->capacity.mem / object->capacity.cards > CARD_MAX)
            return true;
    }
    return false;
}

bool session_unit_of_cluster(const struct cluster_state *cs, int64_t *mib)
{
    struct votes gib = count(cs, GIB), one = count(cs, 1);
    *mib = GIB;
    if (gib.yes && !one.yes) /* --check reports the nodes that do not match */
        return true;
    if (one.yes) {
        *mib = 1;
        return !gib.yes;
    }
    if (gib.no)
        return find_fraction(cs, mib);
    if (!is_beyond_gib(cs))
        return true;
    *mib = 1;
    return false;
}

bool session_unit_of_view(const json_t *view, int64_t *mib)
{
    struct span text = span_of(json_string_value(json_object_get(view, "unit")));
    return text.n && quantity_read_unit(text, mib, NULL) == 0;
}

enum {
    DEFAULT_UNIT_MIB = 1024,
    OPTIONAL_VIEW_MS = 2000, /* timeout of a view that the output does not depend on */
};

static bool has_extender(const struct session *s)
{
    const char *address = s->config->extender;
    return address && strcmp(address, "none") != 0;
}

static struct session_extender view_of(const struct session *s)
{
    const struct cli_config *c = s->config;
    return (struct session_extender){c->extender, c->extender_token, c->extender_ca};
}

json_t *session_fetch_view(struct session *s, int64_t timeout_ms, struct err *err)
{
    if (!has_extender(s))
        return NULL;
    struct session_extender from = view_of(s);
    return session_call_extender(s->client, &from, timeout_ms, err);
}

const json_t *session_view(struct session *s)
{
    if (!s->view_fetched)
        s->view = session_fetch_view(s, OPTIONAL_VIEW_MS, &s->view_error);
    s->view_fetched = true;
    return s->view;
}

static int load_cluster(struct session *s, int64_t unit_mib, struct err *err)
{
    const struct cli_config *c = s->config;
    const struct cluster_state_config config = {
        .ledger = {.unit_mib = unit_mib,
                   .external_tolerance_mib = c->external_tolerance_mib,
                   .require_scv = c->require_scv,
                   .require_node = true,
                   .clock_exact = c->scv_clock == CLI_CLOCK_EXACT,
                   .number_shares = c->scv_number == CLI_NUMBER_SHARE},
        .node_grace_ms = c->node_grace_ms,
        .only_pods = c->classic,
        .seed = (uint64_t)clock_wall_ns(),
    };
    cluster_free(s->cluster);
    s->cluster = cluster_new(&config, s->client);
    return cluster_load(s->cluster, c->timeout_ms, err);
}

/* All amounts depend on the unit: if it is not the default, everything is listed again.
 */
static int determine_unit(struct session *s, struct err *err)
{
    int64_t unit;
    s->unit_assumed = !session_unit_of_cluster(session_state(s), &unit);
    if (s->unit_assumed && session_unit_of_view(session_view(s), &unit))
        s->unit_assumed = false;
    return unit == DEFAULT_UNIT_MIB ? 0 : load_cluster(s, unit, err);
}

int session_load(struct session *s, struct err *err)
{
    const struct cli_config *c = s->config;
    struct session_extender from = view_of(s);
    if (!c->extender && c->extender_token)
        return err_set(err, ERR_INVALID,
                       "--extender-token needs --extender https://HOST:PORT");
    if (has_extender(s) && session_check_extender(&from, err))
        return err_wrap(err, "--extender");
    s->client = kube_connect_in(c->kubeconfig, c->context, &s->ns, err);
    if (!s->client || load_cluster(s, c->unit_mib ? c->unit_mib : DEFAULT_UNIT_MIB, err))
        return -1;
    if (c->classic) /* uses nodes and pods only */
        return 0;
    if (!c->unit_mib && determine_unit(s, err))
        return -1;
    struct cluster_state *cs = s->cluster->state;
    if (c->node_grace_ms && cluster_state_needs_view(cs))
        cluster_state_apply_view(cs, session_view(s));
    return 0;
}

void session_fini(struct session *s)
{
    json_decref(s->view);
    cluster_free(s->cluster);
    kube_client_free(s->client);
    free(s->ns);
}

const struct cluster_state *session_state(const struct session *s)
{
    return s->cluster->state;
}

void session_pod_path(struct buf *path, struct span ns, struct span name)
{
    buf_adds(path, "/api/v1/namespaces/");
    list_watch_escape(path, ns);
    buf_adds(path, "/pods/");
    list_watch_escape(path, name);
}
