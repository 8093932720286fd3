/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/access.h"
#include "view/changes.h"
#include "view/inspect.h"
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
    VIEWS_BYTES = 64 << 20, /* the texts that large replies share */
    TEXT_READERS = 256,     /* concurrent large replies on both ports ... */
    INSPECT_WATCHES = 64,   /* watches of inspect ... */
    MAIN_STREAMS = 16,      /* ... and of each kind on the main port */
    CLUSTER_MS = 1000,      /* minimum between two computations of the cluster line */
};

/* A port: the context of its handlers. */
struct server_port {
    struct server *server;
    bool main; /* the port of the verbs */
};

struct server {
    struct server_config conf;
    struct httpd *httpd;
    struct core_driver *driver;
    struct view_source views;         /* of the driver, with filter_ms */
    const struct view_source *source; /* views */
    _Atomic int64_t filter_ms;
    struct verbs *verbs;
    struct access access;
    struct metrics_source metrics;
    unsigned port;
    struct stream_kind texts, watches; /* watches: of inspect */
    struct stream_text *inspect, *ledger_metrics;
    struct budget verbs_budget, views_budget;
    pthread_mutex_t cluster_lock; /* protects the next three members */
    struct buf cluster;           /* the line of inspect's watches */
    uint64_t cluster_no;          /* its number; 0: none yet */
    int64_t cluster_ms;           /* when it was last computed */
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
        stream_retry_after(reply);
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

/* The state of what inspect and the metrics of the ledger show, and the reply. */
static void send_text(const struct server_port *port, struct stream_text *text,
                      struct httpd_reply *reply)
{
    const struct stream_client client = {port->main, INT64_MAX};
    cleanup_buf struct buf state = {0};
    view_inspect_state(port->server->source, &state);
    stream_text_send(text, buf_span(&state), &client, reply);
}

static void render_inspect(void *ctx, struct buf *out)
{
    const struct server *s = ctx;
    view_inspect_all(s->source, out);
}

/* A watch of inspect: the nodes (view/changes.h), then the members after `nodes`.
 *
 *     {"Cluster":{...},"Type":"SYNCED"}
 *     (empty line)   the initial state is complete; later: heartbeat
 */
struct watch {
    struct stream stream;
    struct server *server;
    struct view_changes *changes;
    bool synced;         /* the initial state is complete */
    uint64_t cluster_no; /* of the last cluster line sent */
};

/* Appends the cluster line, which is computed once for all watches, if it has changed. */
static void write_cluster(struct watch *w, struct buf *out)
{
    struct server *s = w->server;
    int64_t now_ms = clock_mono_ms();
    pthread_mutex_lock(&s->cluster_lock);
    if (!s->cluster_no || now_ms - s->cluster_ms >= CLUSTER_MS) {
        cleanup_buf struct buf line = {0};
        s->cluster_ms = now_ms;
        buf_adds(&line, "{\"Cluster\":{");
        view_inspect_write_cluster(s->source, &line);
        buf_adds(&line, "},\"Type\":\"SYNCED\"}\n");
        s->cluster_no += !span_eq(buf_span(&line), buf_span(&s->cluster));
        buf_set(&s->cluster, buf_span(&line));
    }
    if (w->cluster_no != s->cluster_no)
        buf_add_span(out, buf_span(&s->cluster));
    w->cluster_no = s->cluster_no;
    pthread_mutex_unlock(&s->cluster_lock);
}

static enum httpd_stream_result read_watch(void *stream, struct buf *out)
{
    struct watch *w = stream;
    if (!view_changes_write(w->changes, STREAM_CHUNK, out))
        return HTTPD_STREAM_MORE;
    write_cluster(w, out);
    if (!w->synced)
        buf_addc(out, '\n');
    w->synced = true;
    return HTTPD_STREAM_WAIT;
}

static void close_watch(void *stream)
{
    struct watch *w = stream;
    view_changes_free(w->changes);
}

static struct stream_client client_of(const struct server_port *port,
                                      const struct httpd_request *req)
{
    return (struct stream_client){
        port->main, access_stream_end_ms(&port->server->access, port->main, req)};
}

static void on_inspect(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    const struct server_port *port = ctx;
    struct server *s = port->server;
    const struct stream_client client = client_of(port, req);
    struct err err = {0};
    if (!httpd_is_watch(req)) {
        send_text(port, s->inspect, reply);
        return;
    }
    if (core_driver_ready(s->driver, &err)) {
        stream_refuse(reply, err.msg);
        return;
    }
    struct watch *w =
        stream_open(&s->watches, &client, sizeof *w, read_watch, close_watch, reply);
    if (!w)
        return;
    w->server = s;
    w->changes = view_changes_new(s->source);
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
    if (!view_inspect_node(port->server->source, span_of(name), &reply->body))
        reply->status = 404;
}

/* gpunodes and gpupods. */
static void on_gpuapi(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    const struct server_port *port = ctx;
    const struct stream_client client = client_of(port, req);
    enum gpuapi_kind kind =
        strcmp(strrchr(req->path, '/'), "/gpunodes") == 0 ? GPUAPI_NODES : GPUAPI_PODS;
    gpuapi_answer(port->server->conf.gpuapi, kind, &client, req, reply);
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
}

static void render_ledger_metrics(void *ctx, struct buf *out)
{
    struct server *s = ctx;
    metrics_write_ledger(&s->metrics, out);
}

static void on_metrics(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    const struct server_port *port = ctx;
    struct server *s = port->server;
    (void)req;
    reply->content_type = PROM_CONTENT_TYPE;
    metrics_write(&s->metrics, &reply->body);
    certs_write(s->conf.certs, &reply->body);
    delegated_auth_write(s->conf.auth, &reply->body);
    httpd_metrics(s->httpd, &reply->body);
    prom_process(&reply->body);
    send_text(port, s->ledger_metrics, reply);
}

#define PREFIX "/gpushare-scheduler"
#define API    "/apis/nvidia-gpu-scheduler/v1"
#define NGS    API "/schedule"

/* The webhook, the verbs, and then the views, which both ports serve. The routes of nvidia-gpu-scheduler
 * have its answers to all other paths under /apis. */
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
    fprintf(stderr, "observing on %s:%u\nlistening on %s:%u\n", config->address,
            observe_port, config->address, s->port);
    return 0;
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
    s->views = *core_driver_source(s->driver);
    s->views.filter_ms = &s->filter_ms;
    s->filter_ms = clock_mono_ms();
    s->source = &s->views;
    s->main = (struct server_port){s, .main = true};
    s->observers = (struct server_port){s, .main = false};
    s->access = (struct access){config->certs, config->auth};
    s->watches = (struct stream_kind){.what = "watches",
                                      .most = INSPECT_WATCHES,
                                      .main_most = MAIN_STREAMS,
                                      .heartbeat_ms = STREAM_HEARTBEAT_MS};
    s->texts = (struct stream_kind){
        .what = "large replies", .most = TEXT_READERS, .main_most = MAIN_STREAMS};
    pthread_mutex_init(&s->cluster_lock, NULL);
    s->verbs_budget.max = bodies;
    s->views_budget.max = VIEWS_BYTES;
    s->inspect = stream_text_new(&s->texts, &s->views_budget, render_inspect, s);
    s->ledger_metrics =
        stream_text_new(&s->texts, &s->views_budget, render_ledger_metrics, s);
    s->conf.verbs.budget = &s->verbs_budget;
    s->verbs = verbs_new(&s->conf.verbs);
    s->metrics = (struct metrics_source){s->driver, config->verbs.counters,
                                         config->verbs.recorder, config->metrics_detail};
    s->httpd = httpd_new(&limits);
    if (listen_both(s, err)) {
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
    stream_text_free(s->inspect);
    stream_text_free(s->ledger_metrics);
    buf_fini(&s->cluster);
    pthread_mutex_destroy(&s->cluster_lock);
    verbs_free(s->verbs);
    free(s);
}
