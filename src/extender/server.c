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
#include "extender/view_inspect.h"
#include "extender/view_inspect_stream.h"
#include "extender/view_web.h"

enum {
    FIRST_REQUEST_MS = 10 * 1000,
    IDLE_MS = 120 * 1000,        /* kube-scheduler keeps idle connections for 90 s */
    CONNECTIONS_PER_HANDLER = 4, /* the others are idle, or wait for a handler */
    OBSERVER_IDLE_MS = 60 * 1000,
    OBSERVERS = 4096,
    OBSERVER_THREADS = 1, /* so that a thousand watches use one CPU at most */
    OBSERVER_BODY = 4096,
};

struct server {
    struct httpd *httpd;
    struct store *store;
    struct verbs *verbs;
    struct certs *certs;
    struct access *access;
    unsigned port;
    struct view_gpuapi *gpuapi;
    struct counters *counters;
    struct view_metrics_source metrics;
    struct view_inspect_stream *stream;
    _Atomic bool draining;
};

typedef unsigned (*verb_fn)(struct verbs *v, struct span body, struct buf *reply);

static void run_verb(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply, enum counters_verb name, verb_fn verb)
{
    struct server *s = ctx;
    int64_t began_us = clock_mono_us();
    reply->status = verb(s->verbs, req->body, &reply->body);
    counters_verb(s->counters, name, reply->status, (clock_mono_us() - began_us) * 1000);
    if (atomic_load(&s->draining)) { /* so that the next call reaches another replica */
        reply->header[0][0] = "Connection";
        reply->header[0][1] = "close";
    }
}

static void on_filter(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    run_verb(ctx, req, reply, COUNTERS_FILTER, verb_filter);
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

static void inspect(struct server *s, bool main, const struct httpd_request *req,
                    struct httpd_reply *reply)
{
    const char *watch = httpd_param(req, "watch");
    if (watch && strcmp(watch, "true") == 0)
        view_inspect_stream_watch(s->stream, main, reply);
    else
        view_inspect_all(s->store, &reply->body);
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

static void on_inspect_node(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    struct server *s = ctx;
    const char *name = strrchr(req->path, '/') + 1;
    if (!view_inspect_node(s->store, span_of(name), &reply->body))
        reply->status = 404;
}

static void on_gpunodes(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    struct server *s = ctx;
    view_gpuapi_gpunodes(s->gpuapi, false, req, reply);
}

static void on_gpupods(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct server *s = ctx;
    view_gpuapi_gpupods(s->gpuapi, false, req, reply);
}

static void on_gpunodes_main(void *ctx, const struct httpd_request *req,
                             struct httpd_reply *reply)
{
    struct server *s = ctx;
    view_gpuapi_gpunodes(s->gpuapi, true, req, reply);
}

static void on_gpupods_main(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    struct server *s = ctx;
    view_gpuapi_gpupods(s->gpuapi, true, req, reply);
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
    if (rc == 0 && atomic_load(&s->draining))
        rc = err_set(&err, ERR_UNAVAILABLE, "stopping");
    reply->content_type = "text/plain";
    reply->status = rc ? 503 : 200;
    buf_printf(&reply->body, "%s\n", rc ? err.msg : "ok");
}

static void on_metrics(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct server *s = ctx;
    (void)req;
    reply->content_type = PROM_CONTENT_TYPE;
    view_metrics_write(&s->metrics, &reply->body);
    httpd_metrics(s->httpd, &reply->body);
    prom_process(&reply->body);
}

#define PREFIX "/gpushare-scheduler"
#define API    "/apis/nvidia-gpu-scheduler/v1"
#define NGS    API "/schedule"

#define OBSERVER_ROUTES(inspect)                                                         \
    {"GET", "/version", on_version}, {"GET", "/healthz", on_healthz},                    \
        {"GET", "/readyz", on_readyz}, {"GET", "/metrics", on_metrics},                  \
        {"GET", "/inspect", inspect}, {"GET", "/inspect/*", on_inspect_node},            \
        {"GET", PREFIX "/inspect", inspect}, {"GET", "/", on_web},                       \
        {"GET", "/page.css", on_web}, {"GET", "/page.js", on_web},                       \
    {                                                                                    \
        "GET", PREFIX "/inspect/*", on_inspect_node                                      \
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
    OBSERVER_ROUTES(on_inspect_main),
    API_ROUTES(on_gpunodes_main, on_gpupods_main),
    {0},
};

static const struct httpd_route observer_routes[] = {
    OBSERVER_ROUTES(on_inspect), API_ROUTES(on_gpunodes, on_gpupods), {0}};

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
        .sched_batch = true, /* lower priority than the verbs */
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
    s->certs = config->certs;
    s->access = access_new(&(struct access_config){.certs = config->certs});
    s->gpuapi = config->gpuapi;
    s->stream = view_inspect_stream_new(store, VIEW_GPUAPI_HEARTBEAT_MS);
    s->verbs = verbs_new(&(struct verbs_config){.store = store,
                                                .policy = config->node_score,
                                                .forward = config->forward,
                                                .counters = config->counters,
                                                .recorder = config->recorder});
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
    verbs_free(s->verbs);
    access_free(s->access);
    free(s);
}
