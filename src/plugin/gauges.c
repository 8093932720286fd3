/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gauges.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/prom.h"
#include "wire/httpd.h"

enum {
    CONNECTIONS = 64,
    FIRST_REQUEST_MS = 10 * 1000,
    IDLE_MS = 60 * 1000,
};

struct gauges {
    struct httpd *httpd;
    int64_t started_ms;
    pthread_mutex_t lock; /* protects what follows */
    int64_t late_ms;
    struct dispatcher *dispatcher; /* NULL: not yet */
    struct plugin_api *api;
};

/* What /metrics and health are made of, as of now. */
struct view {
    struct dispatcher_stats dispatcher;
    struct plugin_api_stats api;
    struct parts parts;
};

static void look(struct gauges *s, struct view *v)
{
    *v = (struct view){0};
    pthread_mutex_lock(&s->lock);
    if (s->dispatcher) {
        dispatcher_stats(s->dispatcher, &v->dispatcher);
        plugin_api_stats(s->api, &v->api);
    }
    v->parts = (struct parts){&v->dispatcher, &v->api, clock_mono_ms(), s->started_ms,
                              s->late_ms};
    pthread_mutex_unlock(&s->lock);
}

/* `counts`: a fault makes it a 503. */
static void line(struct httpd_reply *reply, const char *what, int rc,
                 const struct err *err, bool counts)
{
    buf_printf(&reply->body, "%s: %s%s\n", what, rc ? err->msg : "ok",
               rc && !counts ? " (an update does not wait for it)" : "");
    if (rc && counts)
        reply->status = 503;
}

static void lines_of_threads(const struct parts *p, struct httpd_reply *reply)
{
    reply->content_type = "text/plain";
    for (int i = 0; i < PART_THREADS; i++) {
        struct err err = {0};
        int rc = parts_alive(p, (enum part_thread)i, &err);
        line(reply, part_thread_name((enum part_thread)i), rc, &err, true);
    }
}

static void lines_of_parts(const struct parts *p, bool ready, struct httpd_reply *reply)
{
    for (int i = 0; i < PARTS; i++) {
        struct err err = {0};
        enum part part = (enum part)i;
        int rc = parts_check(p, part, &err);
        line(reply, part_name(part), rc, &err, !ready || parts_waits(p, part));
    }
    for (int i = 0; i < IDS_RESOURCES; i++) {
        struct err err = {0};
        enum ids_resource r = (enum ids_resource)i;
        int rc = parts_registered(p, r, &err);
        line(reply, ids_resource_name(r), rc, &err,
             !ready || parts_waits_for_resource(p, r));
    }
}

static void on_livez(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply)
{
    struct view v;
    (void)req;
    look(ctx, &v);
    lines_of_threads(&v.parts, reply);
}

static void on_readyz(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    struct view v;
    (void)req;
    look(ctx, &v);
    lines_of_threads(&v.parts, reply);
    lines_of_parts(&v.parts, true, reply);
}

static void on_healthz(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct view v;
    (void)req;
    look(ctx, &v);
    lines_of_threads(&v.parts, reply);
    lines_of_parts(&v.parts, false, reply);
}

static void on_metrics(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct view v;
    (void)req;
    look(ctx, &v);
    reply->content_type = PROM_CONTENT_TYPE;
    gauges_write(&reply->body, &v.parts);
    prom_process(&reply->body);
}

static void on_version(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    (void)ctx;
    (void)req;
    buf_adds(&reply->body, "{\"version\":\"" GPUSHARE_VERSION "\"}");
}

static const struct httpd_route routes[] = {
    {"GET", "/healthz", on_healthz}, {"GET", "/readyz", on_readyz},
    {"GET", "/livez", on_livez},     {"GET", "/metrics", on_metrics},
    {"GET", "/version", on_version}, {0},
};

struct gauges *gauges_start(const char *address, unsigned port, struct err *err)
{
    struct gauges *s = xcalloc(1, sizeof *s);
    struct httpd_limits limits = {.first_request_ms = FIRST_REQUEST_MS,
                                  .idle_ms = IDLE_MS};
    struct httpd_listener listener = {.name = "health",
                                      .address = address,
                                      .port = port,
                                      .mode = HTTPD_EVENTS,
                                      .connections = CONNECTIONS,
                                      .routes = routes,
                                      .ctx = s};
    s->started_ms = clock_mono_ms();
    pthread_mutex_init(&s->lock, NULL);
    s->httpd = httpd_new(&limits);
    if (httpd_listen(s->httpd, &listener, &port, err)) {
        err_wrap(err, "--port");
        gauges_stop(s);
        return NULL;
    }
    fprintf(stderr, "listening on %s:%u\n", address, port);
    return s;
}

void gauges_show(struct gauges *s, struct dispatcher *dispatcher, struct plugin_api *api,
                 int64_t late_ms)
{
    pthread_mutex_lock(&s->lock);
    s->late_ms = late_ms;
    s->dispatcher = dispatcher;
    s->api = api;
    pthread_mutex_unlock(&s->lock);
}

void gauges_stop(struct gauges *s)
{
    if (!s)
        return;
    httpd_free(s->httpd);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
