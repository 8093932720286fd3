/* SPDX-License-Identifier: Apache-2.0 */
#include "node/status_server.h"

#include <stdio.h>
#include <stdlib.h>

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
    struct status_server_fns fns;
};

struct status_report {
    struct httpd_reply *reply;
};

void status_report_add(struct status_report *report, const char *name, int rc,
                       const struct err *err, bool required)
{
    buf_printf(&report->reply->body, "%s: %s%s\n", name, rc ? err->msg : "ok",
               rc && !required ? " (not required for readiness)" : "");
    if (rc && required)
        report->reply->status = 503;
}

static void answer(struct status_server *s, enum status_probe probe,
                   struct httpd_reply *reply)
{
    struct status_report report = {reply};
    reply->content_type = "text/plain";
    s->fns.checks(s->fns.ctx, probe, &report);
}

static void on_livez(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply)
{
    (void)req;
    answer(ctx, STATUS_LIVEZ, reply);
}

static void on_readyz(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    (void)req;
    answer(ctx, STATUS_READYZ, reply);
}

static void on_healthz(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    (void)req;
    answer(ctx, STATUS_HEALTHZ, reply);
}

static void on_metrics(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct status_server *s = ctx;
    (void)req;
    reply->content_type = PROM_CONTENT_TYPE;
    s->fns.metrics(s->fns.ctx, &reply->body);
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
                                          const struct status_server_fns *fns,
                                          struct err *err)
{
    struct status_server *s = xcalloc(1, sizeof *s);
    struct httpd_limits limits = {.first_request_ms = FIRST_REQUEST_MS,
                                  .idle_ms = IDLE_MS};
    struct httpd_listener_config listener = {
        .name = "health",
        .address = address,
        .port = port,
        .mode = HTTPD_EVENTS,
        .connections = CONNECTIONS,
        .routes = routes,
        .ctx = s,
    };
    s->fns = *fns;
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
