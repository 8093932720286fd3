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

/* Runs until the next timer or I/O, at most until `until_ms`. */
static void run_loop(struct session_cluster *c, int64_t until_ms)
{
    pthread_mutex_lock(&c->lock);
    cluster_state_tick(c->state);
    pthread_mutex_unlock(&c->lock);
    for (struct core_output *o; (o = cluster_state_take_request(c->state)); free(o))
        apisync_streams_start(c->loop, o);
    int64_t due = cluster_state_due(c->state), now = clock_mono_ms();
    if (due > until_ms)
        due = until_ms;
    list_watch_loop_run(c->loop, due > now ? due - now : 0);
}

static int cluster_load(struct session_cluster *c, int64_t timeout_ms, struct err *err)
{
    int64_t from_ms = clock_mono_ms(), until_ms = from_ms + timeout_ms;
    while (cluster_state_check_ready(c->state, err)) {
        if (err->code != ERR_NONE)
            return -1;
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

int session_check_extender(const struct session_extender *from, struct err *err)
{
    struct span ns, service;
    if (!is_url(from->address) && !parse_service(from->address, &ns, &service))
        return err_set(err, ERR_INVALID,
                       "invalid address \"%s\"; expected http://HOST:PORT, "
                       "https://HOST:PORT or NAMESPACE/SERVICE:PORT",
                       from->address);
    if (from->token_file && !span_starts(span_of(from->address), SPAN("https://")))
        return err_set(
            err, ERR_INVALID,
            "a bearer token needs an address https://HOST:PORT, because others "
            "could read it on the way");
    return 0;
}

static int call_url(const struct session_extender *from, int64_t timeout_ms,
                    struct httpc_reply *reply, struct err *err)
{
    struct span base = span_of(from->address);
    cleanup_buf_wipe struct buf authorization = {0};
    cleanup_buf struct buf ca = {0};
    while (base.n && base.p[base.n - 1] == '/')
        base.n--;
    cleanup_free char *clean = xmemdup0(base.p, base.n);
    buf_adds(&authorization, "Bearer ");
    if (from->token_file &&
        file_read(from->token_file, FILE_MAX_BYTES, &authorization, err))
        return -1;
    while (strchr(" \r\n\t", authorization.p[authorization.n - 1]))
        authorization.p[--authorization.n] = '\0';
    if (from->ca_file && file_read(from->ca_file, FILE_MAX_BYTES, &ca, err))
        return -1;
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
    struct httpc *http = httpc_new(&config, err);
    int rc = http ? httpc_call(http, &request, KUBE_MAX_BODY, reply, err) : -1;
    httpc_free(http);
    return rc;
}

static int call_service(struct kube_client *client, const char *address,
                        int64_t timeout_ms, struct httpc_reply *reply, struct err *err)
{
    cleanup_buf struct buf path = {0};
    struct span ns, service;
    parse_service(address, &ns, &service);
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
    if (session_check_extender(from, err))
        return NULL;
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

enum { GIB = 1024 };

int64_t session_unit_of_cluster(const struct cluster_state *cs)
{
    enum { CARD_MAX_GIB = 1024 };
    cleanup_arena struct arena a = {0};
    const struct cluster_state_node **nodes;
    size_t n = cluster_state_nodes(cs, &a, &nodes);
    for (size_t i = 0; i < n; i++) {
        const struct node_resources *r = &nodes[i]->capacity;
        if (r->cards > 0 && r->mem / r->cards > CARD_MAX_GIB)
            return 1;
    }
    return GIB;
}

enum {
    OPTIONAL_VIEW_MS = 2000, /* timeout of a view that the output does not depend on */
};

/* `address` NULL: --extender names none. */
static struct session_extender extender_of(const struct session *s)
{
    const struct cli_config *c = s->config;
    bool none = c->extender && !strcmp(c->extender, "none");
    return (struct session_extender){none ? NULL : c->extender, c->extender_token,
                                     c->extender_ca};
}

json_t *session_fetch_view(struct session *s, int64_t timeout_ms, struct err *err)
{
    struct session_extender from = extender_of(s);
    return from.address ? session_call_extender(s->client, &from, timeout_ms, err) : NULL;
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

int session_load(struct session *s, struct err *err)
{
    const struct cli_config *c = s->config;
    struct session_extender from = extender_of(s);
    if (!c->extender && c->extender_token)
        return err_set(err, ERR_INVALID,
                       "--extender-token needs --extender https://HOST:PORT");
    if (from.address && session_check_extender(&from, err))
        return err_wrap(err, "--extender");
    s->client = kube_connect_in(c->kubeconfig, c->context, &s->ns, err);
    if (!s->client || load_cluster(s, c->unit_mib ? c->unit_mib : GIB, err))
        return -1;
    if (c->classic) /* uses nodes and pods only */
        return 0;
    int64_t unit = c->unit_mib ? GIB : session_unit_of_cluster(session_state(s));
    if (unit != GIB && load_cluster(s, unit, err))
        return -1; /* all amounts depend on the unit: everything is listed again */
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
