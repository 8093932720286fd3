/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/server.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "extender/access.h"
#include "extender/forward.h"
#include "extender/view_inspect_stream.h"
#include "extender/view_snapshot.h"
#include "view/inspect.h"
#include "view/web.h"

enum {
    FIRST_REQUEST_MS = 10 * 1000,
    IDLE_MS = 120 * 1000,        /* kube-scheduler keeps idle connections for 90 s */
    CONNECTIONS_PER_HANDLER = 4, /* the others are idle, or wait for a handler */
    OBSERVER_IDLE_MS = 60 * 1000,
    OBSERVERS = 4096,
    OBSERVER_THREADS = 1, /* so that a thousand watches use one CPU at most */
    OBSERVER_BODY = 4096,
    VIEWS_BYTES = 64 << 20, /* the texts that large replies share */
};

struct server {
    struct httpd *httpd;
    struct store *store;
    struct view_source source; /* the store */
    struct verbs *verbs;
    struct certs *certs;
    struct access *access;
    struct view_auth *auth;
    unsigned port;
    struct view_gpuapi *gpuapi;
    struct counters *counters;
    struct view_metrics_source metrics;
    struct view_inspect_stream *stream;
    struct view_snapshots *snapshots;
    struct budget verbs_budget, views_budget;
    _Atomic bool draining;
};

typedef unsigned (*verb_fn)(struct verbs *v, struct span body, struct buf *reply);

/* The reply is charged until it is sent. */
static bool charge(struct budget *budget, struct httpd_reply *reply)
{
    if (!budget_take(budget, reply->body.cap))
        return false;
    reply->budget = budget;
    reply->charged = reply->body.cap;
    return true;
}

static void charge_reply(struct server *s, struct httpd_reply *reply)
{
    if (charge(&s->verbs_budget, reply))
        return;
    buf_fini(&reply->body);
    buf_adds(&reply->body,
             "{\"Error\":\"too many bytes of requests and replies in memory\"}");
    reply->status = 503;
}

static void add_header(struct httpd_reply *reply, const char *name, const char *value)
{
    size_t i = 0;
    while (reply->header[i][0])
        i++;
    reply->header[i][0] = name;
    reply->header[i][1] = value;
}

static void run_verb(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply, enum counters_verb name, verb_fn verb)
{
    struct server *s = ctx;
    int64_t began_us = clock_mono_us();
    reply->status = verb(s->verbs, req->body, &reply->body);
    charge_reply(s, reply);
    counters_verb(s->counters, name, reply->status, (clock_mono_us() - began_us) * 1000);
    if (reply->status == 503)
        add_header(reply, "Retry-After", "1");
    if (atomic_load(&s->draining)) /* so that the next call reaches another replica */
        add_header(reply, "Connection", "close");
}

static void on_filter(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    bool forwarded = httpd_header(req, FORWARD_HEADER) != NULL;
    run_verb(ctx, req, reply, COUNTERS_FILTER,
             httpd_header(req, REPORT_HEADER) ? verb_filter_report
             : forwarded                      ? verb_filter_forwarded
                                              : verb_filter);
}

static void on_prioritize(void *ctx, const struct httpd_request *req,
                          struct httpd_reply *reply)
{
    run_verb(ctx, req, reply, COUNTERS_PRIORITIZE, verb_prioritize);
}

static void on_preempt(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    run_verb(ctx, req, reply, COUNTERS_PREEMPT, verb_preempt);
}

static void on_bind(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    bool forwarded = httpd_header(req, FORWARD_HEADER) != NULL;
    run_verb(ctx, req, reply, COUNTERS_BIND, forwarded ? verb_bind_forwarded : verb_bind);
}

static void render_inspect(void *ctx, struct buf *out)
{
    struct server *s = ctx;
    view_inspect_all(&s->source, NULL, out);
}

static void inspect_shared(struct server *s, bool main, struct httpd_reply *reply)
{
    cleanup_buf struct buf state = {0};
    view_inspect_state(&s->source, &state);
    struct view_snapshot_source source = {.kind = VIEW_SNAPSHOT_INSPECT,
                                          .state = buf_span(&state),
                                          .render = render_inspect,
                                          .ctx = s};
    view_snapshot_reply(s->snapshots, &source, main, reply);
}

static void inspect(struct server *s, bool main, const struct httpd_request *req,
                    struct httpd_reply *reply)
{
    const char *watch = httpd_param(req, "watch");
    struct view_auth_grant grant = access_grant(s->access, main, req);
    if (watch && strcmp(watch, "true") == 0) {
        view_inspect_stream_watch(s->stream, main, &grant, reply);
        return;
    }
    if (grant.scope) {
        view_inspect_all(&s->source, grant.scope, &reply->body);
        if (!charge(&s->views_budget, reply)) {
            buf_fini(&reply->body);
            httpd_fail(reply, 503, "too many bytes of views in memory; retry later");
            add_header(reply, "Retry-After", "1");
        }
    } else {
        inspect_shared(s, main, reply);
    }
    view_auth_grant_fini(&grant);
}

static void on_inspect(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    inspect(ctx, false, req, reply);
}

static void on_inspect_main(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    inspect(ctx, true, req, reply);
}

static void on_web(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    (void)ctx;
    view_web_answer(req, reply);
}

static void inspect_node(struct server *s, bool main, const struct httpd_request *req,
                         struct httpd_reply *reply)
{
    const char *name = strrchr(req->path, '/') + 1;
    struct view_auth_grant grant = access_grant(s->access, main, req);
    if (!view_inspect_node(&s->source, span_of(name), grant.scope, &reply->body))
        reply->status = 404;
    view_auth_grant_fini(&grant);
}

static void on_inspect_node(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    inspect_node(ctx, false, req, reply);
}

static void on_inspect_node_main(void *ctx, const struct httpd_request *req,
                                 struct httpd_reply *reply)
{
    inspect_node(ctx, true, req, reply);
}

static void gpuapi(struct server *s, enum view_gpuapi_kind kind, bool main,
                   const struct httpd_request *req, struct httpd_reply *reply)
{
    struct view_auth_grant grant = access_grant(s->access, main, req);
    view_gpuapi_answer(s->gpuapi, kind, main, &grant, req, reply);
}

static void on_gpunodes(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    gpuapi(ctx, VIEW_GPUAPI_NODES, false, req, reply);
}

static void on_gpupods(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    gpuapi(ctx, VIEW_GPUAPI_PODS, false, req, reply);
}

static void on_gpunodes_main(void *ctx, const struct httpd_request *req,
                             struct httpd_reply *reply)
{
    gpuapi(ctx, VIEW_GPUAPI_NODES, true, req, reply);
}

static void on_gpupods_main(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    gpuapi(ctx, VIEW_GPUAPI_PODS, true, req, reply);
}

static void on_discovery(void *ctx, const struct httpd_request *req,
                         struct httpd_reply *reply)
{
    (void)ctx;
    (void)req;
    view_gpuapi_discovery(reply);
}

static void on_api_not_found(void *ctx, const struct httpd_request *req,
                             struct httpd_reply *reply)
{
    (void)ctx;
    (void)req;
    view_gpuapi_not_found(reply);
}

static void on_not_get(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    (void)ctx;
    (void)req;
    view_gpuapi_not_allowed(reply, "GET, HEAD");
}

static void on_not_post(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    (void)ctx;
    (void)req;
    view_gpuapi_not_allowed(reply, "POST");
}

static void on_version(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    (void)ctx;
    (void)req;
    buf_adds(&reply->body, "{\"version\":\"" GPUSHARE_VERSION "\"}");
}

static void on_healthz(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct server *s = ctx;
    (void)req;
    reply->content_type = "text/plain";
    buf_adds(&reply->body, "ok\n");
    certs_report(s->certs, &reply->body); /* problems that a restart does not solve */
}

static void on_readyz(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    struct server *s = ctx;
    struct err err = {0};
    (void)req;
    int rc = core_ready(store_read(s->store), store_now(), &err);
    store_read_end(s->store);
    if (rc == 0)
        rc = certs_ready(s->certs, &err);
    if (rc == 0 && atomic_load(&s->draining))
        rc = err_set(&err, ERR_UNAVAILABLE, "stopping");
    reply->content_type = "text/plain";
    reply->status = rc ? 503 : 200;
    buf_printf(&reply->body, "%s\n", rc ? err.msg : "ok");
}

static void render_ledger_metrics(void *ctx, struct buf *out)
{
    struct server *s = ctx;
    view_metrics_write_ledger(&s->metrics, out);
}

static void write_own_metrics(struct server *s, struct buf *out)
{
    view_metrics_write(&s->metrics, out);
    view_auth_write(s->auth, out);
    httpd_metrics(s->httpd, out);
    prom_process(out);
}

static void metrics(struct server *s, bool main, struct httpd_reply *reply)
{
    cleanup_buf struct buf state = {0};
    view_metrics_ledger_state(&s->metrics, &state);
    struct view_snapshot_source source = {.kind = VIEW_SNAPSHOT_METRICS,
                                          .state = buf_span(&state),
                                          .render = render_ledger_metrics,
                                          .ctx = s};
    reply->content_type = PROM_CONTENT_TYPE;
    write_own_metrics(s, &reply->body);
    view_snapshot_reply(s->snapshots, &source, main, reply);
}

static void on_metrics(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    (void)req;
    metrics(ctx, false, reply);
}

static void on_metrics_main(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    (void)req;
    metrics(ctx, true, reply);
}

#define PREFIX "/gpushare-scheduler"
#define API    "/apis/nvidia-gpu-scheduler/v1"
#define NGS    API "/schedule"

#define OBSERVER_ROUTES(inspect, inspect_node, metrics)                                  \
    {"GET", "/version", on_version}, {"GET", "/healthz", on_healthz},                    \
        {"GET", "/readyz", on_readyz}, {"GET", "/metrics", metrics},                     \
        {"GET", "/inspect", inspect}, {"GET", "/inspect/*", inspect_node},               \
        {"GET", PREFIX "/inspect", inspect}, {"GET", "/", on_web},                       \
        {"GET", "/page.css", on_web}, {"GET", "/page.js", on_web},                       \
    {                                                                                    \
        "GET", PREFIX "/inspect/*", inspect_node                                         \
    }

/* The routes of nvidia-gpu-scheduler, with its answers to all other paths under /apis. On
 * the main port a watch occupies a thread. */
#define API_ROUTES(gpunodes, gpupods)                                                    \
    {"GET", API, on_discovery}, {"GET", API "/gpunodes", gpunodes},                      \
        {"GET", API "/gpupods", gpupods}, {NULL, API, on_not_get},                       \
        {NULL, API "/gpunodes", on_not_get}, {NULL, API "/gpupods", on_not_get},         \
        {NULL, "/apis", on_api_not_found},                                               \
    {                                                                                    \
        NULL, "/apis/*", on_api_not_found                                                \
    }

static const struct httpd_route verb_routes[] = {
    {"POST", PREFIX "/filter", on_filter},
    {"POST", PREFIX "/prioritize", on_prioritize},
    {"POST", PREFIX "/preempt", on_preempt},
    {"POST", PREFIX "/bind", on_bind},
    {"POST", "/filter", on_filter},
    {"POST", "/prioritize", on_prioritize},
    {"POST", "/preempt", on_preempt},
    {"POST", "/bind", on_bind},
    {"POST", NGS "/filter", on_filter},
    {"POST", NGS "/prioritize", on_prioritize},
    {"POST", NGS "/preempt", on_preempt},
    {NULL, NGS "/filter", on_not_post},
    {NULL, NGS "/prioritize", on_not_post},
    {NULL, NGS "/preempt", on_not_post},
    OBSERVER_ROUTES(on_inspect_main, on_inspect_node_main, on_metrics_main),
    API_ROUTES(on_gpunodes_main, on_gpupods_main),
    {0},
};

static const struct httpd_route observer_routes[] = {
    OBSERVER_ROUTES(on_inspect, on_inspect_node, on_metrics),
    API_ROUTES(on_gpunodes, on_gpupods),
    {0}};

/* Their handlers do not block, and they must be answered whatever else happens. */
static const char *const probes[] = {"/healthz", "/readyz", "/version", NULL};

static int listen_both(struct server *s, const struct server_config *config,
                       struct err *err)
{
    struct httpd_listener_config verbs = {
        .name = "verbs",
        .address = config->address,
        .port = config->port,
        .mode = HTTPD_THREADS,
        .yields = certs_mode(config->certs) != CERTS_INSECURE,
        .connections = CONNECTIONS_PER_HANDLER * config->connections,
        .handlers = config->connections,
        .probes = probes,
        .max_body = config->max_body,
        .tls = certs_verbs(config->certs),
        .authorize = access_allows_main,
        .authorize_ctx = s->access,
        .routes = verb_routes,
        .ctx = s,
    };
    struct httpd_listener_config observers = {
        .name = "observers",
        .address = config->address,
        .port = config->observe_port,
        .mode = HTTPD_EVENTS,
        .threads = OBSERVER_THREADS,
        .yields = true, /* to the verbs */
        .connections = OBSERVERS,
        .idle_ms = OBSERVER_IDLE_MS,
        .max_body = OBSERVER_BODY,
        .tls = certs_observers(config->certs),
        .authorize = access_allows_observer,
        .authorize_ctx = s->access,
        .routes = observer_routes,
        .ctx = s,
    };
    unsigned observe_port;
    if (httpd_listen(s->httpd, &verbs, &s->port, err))
        return err_wrap(err, "--port");
    if (httpd_listen(s->httpd, &observers, &observe_port, err))
        return err_wrap(err, "--observe-port");
    fprintf(stderr, "observing on %s:%u\nlistening on %s:%u\n", config->address,
            observe_port, config->address, s->port);
    return 0;
}

struct server *server_start(const struct server_config *config, struct store *store,
                            struct err *err)
{
    struct server *s = xcalloc(1, sizeof *s);
    struct httpd_limits limits = {
        .max_bodies = config->max_bodies,
        .first_request_ms = FIRST_REQUEST_MS,
        .idle_ms = IDLE_MS,
    };
    s->store = store;
    s->source = store_source(store);
    s->certs = config->certs;
    s->access =
        access_new(&(struct access_config){.certs = config->certs, .auth = config->auth});
    s->auth = config->auth;
    s->gpuapi = config->gpuapi;
    s->stream = view_inspect_stream_new(store, VIEW_GPUAPI_HEARTBEAT_MS);
    s->verbs_budget.max = config->max_bodies;
    s->views_budget.max = VIEWS_BYTES;
    s->snapshots = view_snapshots_new(&s->views_budget);
    s->verbs = verbs_new(&(struct verbs_config){.store = store,
                                                .policy = config->node_score,
                                                .preempts = config->preempts,
                                                .answer = config->filter_answer,
                                                .forward = config->forward,
                                                .gangs = config->gangs,
                                                .counters = config->counters,
                                                .recorder = config->recorder,
                                                .budget = &s->verbs_budget});
    s->counters = config->counters;
    s->metrics = (struct view_metrics_source){store, config->counters, config->recorder,
                                              config->metrics_detail};
    s->httpd = httpd_new(&limits);
    if (listen_both(s, config, err)) {
        server_stop(s);
        return NULL;
    }
    return s;
}

unsigned server_port(const struct server *s)
{
    return s->port;
}

void server_unready(struct server *s)
{
    atomic_store(&s->draining, true);
}

bool server_drain(struct server *s, int64_t timeout_ms)
{
    server_unready(s);
    return httpd_drain(s->httpd, timeout_ms);
}

void server_stop(struct server *s)
{
    if (!s)
        return;
    httpd_free(s->httpd);
    view_inspect_stream_free(s->stream);
    view_snapshots_free(s->snapshots);
    verbs_free(s->verbs);
    access_free(s->access);
    free(s);
}
