/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/status_server.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/publisher.h"
#include "base/mem.h"
#include "base/prom.h"
#include "wire/httpd.h"

enum {
    CONNECTIONS = 64,
    FIRST_REQUEST_MS = 10 * 1000,
    IDLE_MS = 60 * 1000,
};

struct status_server {
    struct httpd *httpd;
    struct status_server_checks checks;
};

static void line(struct httpd_reply *reply, const char *what, int rc,
                 const struct err *err)
{
    buf_printf(&reply->body, "%s: %s\n", what, rc ? err->msg : "ok");
    if (rc)
        reply->status = 503;
}

static void on_livez(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply)
{
    struct status_server *s = ctx;
    struct err err = {0};
    (void)req;
    reply->content_type = "text/plain";
    line(reply, "threads", s->checks.check(s->checks.ctx, -1, &err), &err);
}

static void show_parts(struct status_server *s, int (*check)(void *, int, struct err *),
                       struct httpd_reply *reply)
{
    for (int part = 0; part < PUBLISHER_CHECKS; part++) {
        struct err err = {0};
        int rc = check(s->checks.ctx, part, &err);
        if (rc <= 0)
            line(reply, publisher_check_name((enum publisher_check)part), rc, &err);
    }
}

static void on_healthz(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct status_server *s = ctx;
    on_livez(ctx, req, reply);
    show_parts(s, s->checks.check, reply);
}

static void on_readyz(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    struct status_server *s = ctx;
    on_livez(ctx, req, reply);
    show_parts(s, s->checks.ready, reply);
}

static void on_metrics(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct status_server *s = ctx;
    (void)req;
    reply->content_type = PROM_CONTENT_TYPE;
    s->checks.metrics(s->checks.ctx, &reply->body);
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

struct status_server *status_server_start(const char *address, unsigned port,
                            const struct status_server_checks *checks, struct err *err)
{
    struct status_server *s = xcalloc(1, sizeof *s);
    struct httpd_limits limits = {.first_request_ms = FIRST_REQUEST_MS,
                                  .idle_ms = IDLE_MS};
    struct httpd_listener listener = {
        .name = "health",
        .address = address,
        .port = port,
        .mode = HTTPD_EVENTS,
        .connections = CONNECTIONS,
        .routes = routes,
        .ctx = s,
    };
    s->checks = *checks;
    s->httpd = httpd_new(&limits);
    if (httpd_listen(s->httpd, &listener, &port, err)) {
        err_wrap(err, "--port");
        status_server_stop(s);
        return NULL;
    }
    fprintf(stderr, "listening on %s:%u\n", address, port);
    return s;
}

void status_server_stop(struct status_server *s)
{
    if (!s)
        return;
    httpd_free(s->httpd);
    free(s);
}
