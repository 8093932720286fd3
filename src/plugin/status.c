/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/status.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "node/status_server.h"
#include "plugin/plugin_metrics.h"

struct status {
    struct status_server *server;
    int64_t started_ms;
    pthread_mutex_t lock; /* protects the members below */
    int64_t late_ms;
    struct dispatcher *dispatcher; /* NULL: not started yet */
    struct plugin_api *api;
};

/* The statistics of all parts at one moment. */
struct snapshot {
    struct dispatcher_stats dispatcher;
    struct plugin_api_stats api;
    struct health_checks checks;
};

static void take_snapshot(struct status *s, struct snapshot *v)
{
    *v = (struct snapshot){0};
    pthread_mutex_lock(&s->lock);
    if (s->dispatcher) {
        dispatcher_stats(s->dispatcher, &v->dispatcher);
        plugin_api_stats(s->api, &v->api);
    }
    v->checks = (struct health_checks){&v->dispatcher, &v->api, clock_mono_ms(),
                                       s->started_ms, s->late_ms};
    pthread_mutex_unlock(&s->lock);
}

static void add_threads(const struct health_checks *checks, struct status_report *report)
{
    for (int i = 0; i < HEALTH_CHECK_THREADS; i++) {
        struct err err = {0};
        enum health_check_thread thread = (enum health_check_thread)i;
        int rc = health_checks_thread(checks, thread, &err);
        status_report_add(report, health_checks_thread_name(thread), rc, &err, true);
    }
}

static void add_checks(const struct health_checks *checks, bool readyz,
                       struct status_report *report)
{
    for (int i = 0; i < HEALTH_CHECKS; i++) {
        struct err err = {0};
        enum health_check check = (enum health_check)i;
        int rc = health_checks_run(checks, check, &err);
        status_report_add(report, health_checks_name(check), rc, &err,
                          !readyz || health_checks_required(checks, check));
    }
    for (int i = 0; i < IDS_RESOURCES; i++) {
        struct err err = {0};
        enum ids_resource r = (enum ids_resource)i;
        int rc = health_checks_registered(checks, r, &err);
        status_report_add(report, ids_resource_name(r), rc, &err,
                          !readyz || health_checks_resource_required(checks, r));
    }
}

static void on_checks(void *ctx, enum status_probe probe, struct status_report *report)
{
    struct snapshot v;
    take_snapshot(ctx, &v);
    add_threads(&v.checks, report);
    if (probe != STATUS_LIVEZ)
        add_checks(&v.checks, probe == STATUS_READYZ, report);
}

static void on_metrics(void *ctx, struct buf *out)
{
    struct snapshot v;
    take_snapshot(ctx, &v);
    plugin_metrics_write(out, &v.checks);
}

struct status *status_start(const char *address, unsigned port, struct err *err)
{
    struct status *s = xcalloc(1, sizeof *s);
    const struct status_server_fns fns = {on_checks, on_metrics, s};
    s->started_ms = clock_mono_ms();
    pthread_mutex_init(&s->lock, NULL);
    s->server = status_server_start(address, port, &fns, err);
    if (s->server)
        return s;
    status_stop(s);
    return NULL;
}

void status_set_parts(struct status *s, struct dispatcher *dispatcher,
                      struct plugin_api *api, int64_t late_ms)
{
    pthread_mutex_lock(&s->lock);
    s->late_ms = late_ms;
    s->dispatcher = dispatcher;
    s->api = api;
    pthread_mutex_unlock(&s->lock);
}

void status_stop(struct status *s)
{
    if (!s)
        return;
    status_server_stop(s->server);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
