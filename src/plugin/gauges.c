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
    ALIVE_MS = 30 * 1000,
};

struct gauges {
    struct httpd *httpd;
    pthread_mutex_t lock; /* protects what follows */
    struct brain *brain;  /* NULL: not yet */
    struct api *api;
};

static bool look(struct gauges *s, struct brain_stats *brain,
                 struct plugin_api_stats *api)
{
    *brain = (struct brain_stats){0};
    *api = (struct plugin_api_stats){0};
    pthread_mutex_lock(&s->lock);
    bool there = s->brain != NULL;
    if (there) {
        brain_stats(s->brain, brain);
        plugin_api_stats(s->api, api);
    }
    pthread_mutex_unlock(&s->lock);
    return there;
}

static void say(struct httpd_reply *reply, const char *what, bool good, const char *bad)
{
    buf_printf(&reply->body, "%s: %s\n", what, good ? "ok" : bad);
    if (!good)
        reply->status = 503;
}

static void on_livez(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply)
{
    struct brain_stats brain;
    struct plugin_api_stats api;
    (void)req;
    bool there = look(ctx, &brain, &api);
    reply->content_type = "text/plain";
    say(reply, "brain", there && clock_mono_ms() - brain.alive_ms < ALIVE_MS,
        "it has not come by for too long");
}

static void on_healthz(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct brain_stats brain;
    struct plugin_api_stats api;
    look(ctx, &brain, &api);
    on_livez(ctx, req, reply);
    say(reply, "pods", brain.listed, "the API server has not told yet which there are");
    say(reply, "cards", brain.cards > 0, "none has been seen yet");
    for (int r = 0; r < IDS_RESOURCES; r++)
        say(reply, ids_resource_name((enum ids_resource)r),
            brain.up[r] || (brain.cards > 0 && !brain.wanted[r]),
            "not registered with the kubelet");
}

static void on_metrics(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct brain_stats brain;
    struct plugin_api_stats api;
    (void)req;
    look(ctx, &brain, &api);
    reply->content_type = PROM_CONTENT_TYPE;
    gauges_write(&reply->body, &brain, &api);
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
    {"GET", "/healthz", on_healthz}, {"GET", "/readyz", on_healthz},
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

void gauges_show(struct gauges *s, struct brain *brain, struct api *api)
{
    pthread_mutex_lock(&s->lock);
    s->brain = brain;
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
