/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/server.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/access.h"
#include "extender/gpuapi.h"
#include "view/watch.h"
#include "view/web.h"

enum {
    /* Request bodies in memory, and as much for replies: at least; and room for one of the
     * largest size beside usual ones. */
    BODIES_MIN = 48 << 20,
    FIRST_REQUEST_MS = 10 * 1000,
    IDLE_MS = 120 * 1000,        /* kube-scheduler keeps idle connections for 90 s */
    CONNECTIONS_PER_HANDLER = 4, /* the others are idle, or wait for a handler */
    OBSERVERS = 4096,
    OBSERVER_BODY = 4096,
    VIEWS_BYTES = 64 << 20, /* of states of the past that are still being sent */
    TEXT_READERS = 256, /* concurrent replies of inspect and metrics on both ports ... */
    INSPECT_WATCHES = 64, /* watches of inspect ... */
    GPUAPI_WATCHES = 512, /* and of gpunodes and gpupods ... */
    MAIN_STREAMS = 16,    /* ... and of each kind on the main port */
    GPUAPI_LISTS = 64,
    IDLE_VIEW_MS = 5 * 60 * 1000,
};

/* What is rendered once for all readers. */
enum { INSPECT, LEDGER_METRICS, GPUNODES, GPUPODS, VIEWS };

/* A port: the context of its handlers. */
struct server_port {
    struct server *server;
    bool main; /* the port of the verbs */
};

struct server {
    struct server_config conf;
    struct httpd *httpd;
    struct core_driver *driver;
    struct view_source source; /* of the driver, with filter_ms */
    _Atomic int64_t filter_ms;
    struct verbs *verbs;
    struct access access;
    struct metrics_source metrics;
    unsigned port;
    struct view_watch_limit texts, watches; /* of inspect and metrics */
    struct view_watch_limit gpuapi_lists, gpuapi_watches;
    struct view_watch *views[VIEWS];
    struct budget verbs_budget, views_budget;
    _Atomic bool draining;
    struct server_port main, observers;
};

/* -- the verbs -- */

static void on_verb(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    static const struct {
        struct span name;
        unsigned (*answer)(struct verb_call *call);
    } verbs[COUNTERS_VERBS] = {
        [COUNTERS_FILTER] = {SPAN("filter"), filter_answer},
        [COUNTERS_PRIORITIZE] = {SPAN("prioritize"), prioritize_answer},
        [COUNTERS_PREEMPT] = {SPAN("preempt"), preempt_answer},
        [COUNTERS_BIND] = {SPAN("bind"), bind_answer},
    };
    struct server *s = ((struct server_port *)ctx)->server;
    struct budget *budget = &s->verbs_budget;
    const struct span name = span_of(strrchr(req->path, '/') + 1);
    int64_t began_us = clock_mono_us();
    struct verb_call call = {.verbs = s->verbs,
                             .body = req->body,
                             .request = req,
                             .source = httpd_header(req, REPORT_HEADER) ? VERB_REPORT
                                       : httpd_header(req, FORWARD_HEADER)
                                           ? VERB_REPLICA
                                           : VERB_SCHEDULER,
                             .reply = &reply->body};
    enum counters_verb verb = COUNTERS_FILTER;
    while (!span_eq(verbs[verb].name, name))
        verb++;
    if (verb == COUNTERS_FILTER) {
        const char *name_of_client =
            httpd_client_name(req, TLS_CLIENTS) ?: httpd_client_name(req, TLS_OWN);
        s->filter_ms = began_us / 1000;
        counters_filter_call(s->conf.verbs.counters,
                             call.source != VERB_SCHEDULER ? "replica"
                                                           : name_of_client ?: "anonymous");
    }
    reply->status = verbs[verb].answer(&call);
    if (budget_take(budget, reply->body.cap)) { /* until it is sent */
        reply->budget = budget;
        reply->charged = reply->body.cap;
    } else {
        buf_fini(&reply->body);
        buf_adds(&reply->body,
                 "{\"Error\":\"too many bytes of requests and replies in memory\"}");
        reply->status = 503;
    }
    counters_verb(s->conf.verbs.counters, verb, reply->status,
                  (clock_mono_us() - began_us) * 1000);
    if (reply->status == 503)
        httpd_add_header(reply, "Retry-After", "1");
    if (atomic_load(&s->draining)) /* so that the next call reaches another replica */
        httpd_add_header(reply, "Connection", "close");
}

static void on_pod_defaults(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    const struct server_port *port = ctx;
    pod_defaults_answer(&port->server->conf.pod_defaults, req->body, reply);
}

/* -- views -- */

/* Answers with the view, if it is `ready` or the ledger is. */
static void answer_view(struct server_port *port, int view, bool ready,
                        const struct httpd_request *req, struct httpd_reply *reply)
{
    struct server *s = port->server;
    struct err err = {0};
    if (!ready && core_driver_ready(s->driver, &err))
        httpd_fail(reply, 503, "%s", err.msg);
    else
        view_watch_answer(s->views[view], port->main, httpd_is_watch(req),
                          access_stream_end_ms(&s->access, port->main, req), reply);
}

static void on_inspect(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    answer_view(ctx, INSPECT, !httpd_is_watch(req), req, reply);
}

static void on_web(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    (void)ctx;
    view_web_answer(req, reply);
}

static void on_inspect_node(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    const struct server_port *port = ctx;
    const char *name = strrchr(req->path, '/') + 1;
    if (!view_inspect_node(&port->server->source, span_of(name), &reply->body))
        reply->status = 404;
}

static void on_gpuapi(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    struct server_port *port = ctx;
    int view = strcmp(strrchr(req->path, '/'), "/gpunodes") == 0 ? GPUNODES : GPUPODS;
    bool filled = view_watch_is_filled(port->server->views[view]);
    answer_view(port, view, filled, req, reply);
}

static void on_discovery(void *ctx, const struct httpd_request *req,
                         struct httpd_reply *reply)
{
    (void)ctx, (void)req;
    buf_adds(&reply->body,
             "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":"
             "\"nvidia-gpu-scheduler/v1\",\"resources\":["
             "{\"name\":\"gpupods\",\"singularName\":\"gpupod\",\"namespaced\":false,"
             "\"kind\":\"GpuPod\",\"verbs\":[\"list\",\"watch\"]},"
             "{\"name\":\"gpunodes\",\"singularName\":\"gpunode\",\"namespaced\":false,"
             "\"kind\":\"GpuNode\",\"verbs\":[\"list\",\"watch\"]}]}");
}

static void on_api_not_found(void *ctx, const struct httpd_request *req,
                             struct httpd_reply *reply)
{
    (void)ctx, (void)req;
    reply->status = 404;
    httpd_add_header(reply, "X-Content-Type-Options", "nosniff");
    buf_adds(&reply->body, "{\"code\":404,\"msg\":\"api not found\"}\n");
}

/* Without a body, unlike the 405 of the server. */
static void on_not_allowed(void *ctx, const struct httpd_request *req,
                           struct httpd_reply *reply)
{
    (void)ctx;
    reply->status = 405;
    reply->content_type = NULL;
    httpd_add_header(reply, "Allow",
                     strstr(req->path, "/schedule/") ? "POST" : "GET, HEAD");
}

static void on_healthz(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct server *s = ((struct server_port *)ctx)->server;
    (void)req;
    reply->content_type = "text/plain";
    buf_adds(&reply->body, "ok\n");
    certs_report(s->conf.certs,
                 &reply->body); /* problems that a restart does not solve */
}

static void on_readyz(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    struct server *s = ((struct server_port *)ctx)->server;
    struct err err = {0};
    (void)req;
    int rc = core_driver_ready(s->driver, &err);
    if (rc == 0)
        rc = certs_ready(s->conf.certs, &err);
    if (rc == 0 && atomic_load(&s->draining))
        rc = err_set(&err, ERR_UNAVAILABLE, "stopping");
    reply->content_type = "text/plain";
    reply->status = rc ? 503 : 200;
    buf_printf(&reply->body, "%s\n", rc ? err.msg : "ok");
    int quotas = core_quotas_ready(core_driver_read(s->driver), core_driver_now(), &err);
    core_driver_read_end(s->driver);
    if (!rc && quotas) /* this stops some pods only */
        buf_printf(&reply->body, "%s\n", err.msg);
}

static void write_ledger_metrics(void *ctx, struct buf *out)
{
    metrics_write_ledger(ctx, out);
}

/* What all clients share of the metrics. */
static const struct view_watch_kind ledger_metrics = {
    .words = {.list = "", .list_text = "", .list_end = ""},
    .write_text = write_ledger_metrics};

static void on_metrics(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct server_port *port = ctx;
    struct server *s = port->server;
    (void)req;
    reply->content_type = PROM_CONTENT_TYPE;
    metrics_write(&s->metrics, &reply->body);
    certs_write(s->conf.certs, &reply->body);
    delegated_auth_write(s->conf.auth, &reply->body);
    httpd_metrics(s->httpd, &reply->body);
    prom_process(&reply->body);
    view_watch_answer(s->views[LEDGER_METRICS], port->main, false, INT64_MAX, reply);
}

#define PREFIX "/gpushare-scheduler"
#define API    "/apis/nvidia-gpu-scheduler/v1"
#define NGS    API "/schedule"

/* The webhook, the verbs, and then the views, which both ports serve. The routes of
 * nvidia-gpu-scheduler have its answers to all other paths under /apis. */
static const struct httpd_route routes[] = {
    {"POST", POD_DEFAULTS_PATH, on_pod_defaults},
    {"POST", PREFIX "/filter", on_verb},
    {"POST", PREFIX "/prioritize", on_verb},
    {"POST", PREFIX "/preempt", on_verb},
    {"POST", PREFIX "/bind", on_verb},
    {"POST", "/filter", on_verb},
    {"POST", "/prioritize", on_verb},
    {"POST", "/preempt", on_verb},
    {"POST", "/bind", on_verb},
    {"POST", NGS "/filter", on_verb},
    {"POST", NGS "/prioritize", on_verb},
    {"POST", NGS "/preempt", on_verb},
    {NULL, NGS "/filter", on_not_allowed},
    {NULL, NGS "/prioritize", on_not_allowed},
    {NULL, NGS "/preempt", on_not_allowed},
    {"GET", "/version", httpd_version},
    {"GET", "/healthz", on_healthz},
    {"GET", "/readyz", on_readyz},
    {"GET", "/metrics", on_metrics},
    {"GET", "/inspect", on_inspect},
    {"GET", "/inspect/*", on_inspect_node},
    {"GET", PREFIX "/inspect", on_inspect},
    {"GET", PREFIX "/inspect/*", on_inspect_node},
    {"GET", "/", on_web},
    {"GET", "/page.css", on_web},
    {"GET", "/page.js", on_web},
    {"GET", API, on_discovery},
    {"GET", API "/gpunodes", on_gpuapi},
    {"GET", API "/gpupods", on_gpuapi},
    {NULL, API, on_not_allowed},
    {NULL, API "/gpunodes", on_not_allowed},
    {NULL, API "/gpupods", on_not_allowed},
    {NULL, "/apis", on_api_not_found},
    {NULL, "/apis/*", on_api_not_found},
    {0},
};

/* Their handlers do not block, and they must be answered whatever else happens. */
static const char *const probes[] = {"/healthz", "/readyz", "/version", NULL};

static int listen_both(struct server *s, struct err *err)
{
    const struct server_config *config = &s->conf;
    const struct httpd_route *views = routes + 1;
    while (views->handler == on_verb || views->handler == on_not_allowed)
        views++;
    struct httpd_listener_config verbs = {
        .name = "verbs",
        .address = config->address,
        .port = (unsigned)config->port,
        .mode = HTTPD_THREADS,
        .yields = certs_info(config->certs)->mode != CERTS_INSECURE,
        .connections = CONNECTIONS_PER_HANDLER * (unsigned)config->connections,
        .handlers = (unsigned)config->connections,
        .probes = probes,
        .max_body = (size_t)config->max_body,
        .tls = certs_info(config->certs)->verbs,
        .authorize = access_allows_main,
        .authorize_ctx = &s->access,
        .routes = routes,
        .ctx = &s->main,
    };
    struct httpd_listener_config observers = {
        .name = "observers",
        .address = config->address,
        .port = (unsigned)config->observe_port,
        .mode = HTTPD_EVENTS,
        .yields = true, /* to the verbs */
        .connections = OBSERVERS,
        .max_body = OBSERVER_BODY,
        .tls = certs_info(config->certs)->observers,
        .authorize = access_allows_observer,
        .authorize_ctx = &s->access,
        .routes = views,
        .ctx = &s->observers,
    };
    unsigned observe_port;
    if (httpd_listen(s->httpd, &verbs, &s->port, err))
        return err_wrap(err, "--port");
    if (httpd_listen(s->httpd, &observers, &observe_port, err))
        return err_wrap(err, "--observe-port");
    fprintf(stderr,
            "observing on " STR_HOST ":%u\n"
            "listening on " STR_HOST ":%u\n",
            STR_HOST_ARG(config->address), observe_port, STR_HOST_ARG(config->address),
            s->port);
    return 0;
}

static void start_views(struct server *s)
{
    struct view_watch_config c = {.kind = &view_watch_inspect,
                                  .ctx = &s->source,
                                  .source = &s->source,
                                  .lists = &s->texts,
                                  .watches = &s->watches,
                                  .budget = &s->views_budget,
                                  .idle_ms = IDLE_VIEW_MS,
                                  .heartbeat_ms = VIEW_WATCH_HEARTBEAT_MS};
    s->texts = (struct view_watch_limit){
        .what = "large replies", .most = TEXT_READERS, .main_most = MAIN_STREAMS};
    s->watches = (struct view_watch_limit){
        .what = "watches", .most = INSPECT_WATCHES, .main_most = MAIN_STREAMS};
    s->gpuapi_lists = (struct view_watch_limit){
        .what = "lists", .most = GPUAPI_LISTS, .main_most = GPUAPI_LISTS};
    s->gpuapi_watches = (struct view_watch_limit){
        .what = "watches", .most = GPUAPI_WATCHES, .main_most = MAIN_STREAMS};
    s->views_budget.max = VIEWS_BYTES;
    s->views[INSPECT] = view_watch_new(&c);
    c.kind = &ledger_metrics;
    c.ctx = &s->metrics;
    s->views[LEDGER_METRICS] = view_watch_new(&c);
    c.kind = &gpuapi_nodes;
    c.ctx = &s->conf.node_grace_s;
    c.lists = &s->gpuapi_lists;
    c.watches = &s->gpuapi_watches;
    c.warns = true;
    s->views[GPUNODES] = view_watch_new(&c);
    c.kind = &gpuapi_pods;
    s->views[GPUPODS] = view_watch_new(&c);
}

struct server *server_start(const struct server_config *config, struct err *err)
{
    struct server *s = xcalloc(1, sizeof *s);
    size_t bodies = (size_t)config->max_body / 2 * 3;
    bodies = bodies > BODIES_MIN ? bodies : BODIES_MIN;
    struct httpd_limits limits = {
        .max_bodies = bodies,
        .first_request_ms = FIRST_REQUEST_MS,
        .idle_ms = IDLE_MS,
    };
    s->conf = *config;
    s->driver = config->verbs.driver;
    s->source = *core_driver_source(s->driver);
    s->source.filter_ms = &s->filter_ms;
    s->source.hami_values = config->hami_values;
    s->filter_ms = clock_mono_ms();
    s->main = (struct server_port){s, .main = true};
    s->observers = (struct server_port){s, .main = false};
    s->access = (struct access){config->certs, config->auth};
    s->verbs_budget.max = bodies;
    s->metrics = (struct metrics_source){s->driver, config->verbs.counters,
                                         config->verbs.recorder, config->metrics_detail};
    start_views(s);
    s->conf.verbs.budget = &s->verbs_budget;
    s->verbs = verbs_new(&s->conf.verbs);
    s->httpd = httpd_new(&limits);
    if (listen_both(s, err)) {
        server_stop(s);
        server_free(s);
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

void server_trim(struct server *s)
{
    for (int i = 0; i < VIEWS; i++)
        view_watch_trim(s->views[i]);
}

void server_stop(struct server *s)
{
    if (s)
        httpd_free(steal(&s->httpd));
}

void server_free(struct server *s)
{
    if (!s)
        return;
    for (int i = 0; i < VIEWS; i++)
        view_watch_free(s->views[i]);
    verbs_free(s->verbs);
    free(s);
}
