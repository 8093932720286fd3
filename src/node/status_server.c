/* SPDX-License-Identifier: Apache-2.0 */
/* Probes and metrics over HTTP. */
#include "node/status_server.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/prom.h"
#include "wire/httpd.h"

enum {
    CONNECTIONS = 512,
    FIRST_REQUEST_MS = 10 * 1000,
    IDLE_MS = 60 * 1000,
    METRICS_SHARE = 20,
    LINES = 32,
};

struct status_server {
    struct httpd *httpd;
    struct status_server_fns fns;
    /* The last reply to /metrics and when it expires. Used by the listener's thread. */
    struct buf metrics;
    int64_t metrics_until_us;
};

struct status_report {
    struct status_line {
        const char *name;
        bool failed, required;
        struct err err;
    } lines[LINES];
    size_t n;
};

void status_report_add(struct status_report *report, const char *name, int rc,
                       const struct err *err, bool required)
{
    struct status_line *line = report->lines;
    while (line < report->lines + report->n && strcmp(line->name, name) != 0)
        line++;
    if (line == report->lines + LINES)
        return;
    if (line == report->lines + report->n)
        report->lines[report->n++] = (struct status_line){.name = name};
    if (!rc || (line->failed && (line->required || !required)))
        return;
    line->failed = true;
    line->required = required;
    line->err = *err;
}

/* /livez, /readyz and /healthz. */
static void on_probe(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply)
{
    struct status_server *s = ctx;
    struct status_report report;
    enum status_probe probe = req->path[1] == 'l'   ? STATUS_LIVEZ
                              : req->path[1] == 'r' ? STATUS_READYZ
                                                    : STATUS_HEALTHZ;
    reply->content_type = "text/plain";
    report.n = 0;
    s->fns.checks(s->fns.ctx, probe, &report);
    for (size_t i = 0; i < report.n; i++) {
        const struct status_line *line = &report.lines[i];
        buf_printf(
            &reply->body, "%s: %s%s\n", line->name, line->failed ? line->err.msg : "ok",
            line->failed && !line->required ? " (not required for readiness)" : "");
        if (line->failed && line->required)
            reply->status = 503;
    }
}

/* Writing the metrics takes at most a twentieth of the time, so that a client that asks
 * all the time does not delay probes. */
static void on_metrics(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct status_server *s = ctx;
    int64_t now_us = clock_mono_us();
    (void)req;
    reply->content_type = PROM_CONTENT_TYPE;
    if (now_us >= s->metrics_until_us) {
        buf_clear(&s->metrics);
        s->fns.metrics(s->fns.ctx, &s->metrics);
        s->metrics_until_us = now_us + (clock_mono_us() - now_us) * METRICS_SHARE;
    }
    buf_add_span(&reply->body, buf_span(&s->metrics));
}

static const struct httpd_route routes[] = {
    {"GET", "/healthz", on_probe},      {"GET", "/readyz", on_probe},
    {"GET", "/livez", on_probe},        {"GET", "/metrics", on_metrics},
    {"GET", "/version", httpd_version}, {0},
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
        status_server_stop(s);
        return NULL;
    }
    fprintf(stderr, "listening on " STR_HOST ":%u\n", STR_HOST_ARG(address), port);
    return s;
}

void status_server_stop(struct status_server *s)
{
    if (!s)
        return;
    httpd_free(s->httpd);
    buf_fini(&s->metrics);
    free(s);
}
