/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The health checks and metrics of the device plugin.
 */

#include "plugin/status.h"

#include "base/mem.h"
#include "base/prom.h"

#define NAME(rest) "gpushare_plugin_" rest

enum {
    DISPATCHER_MS = 30 * 1000,
    /* The thread of the watch resolves names and connects. */
    WATCH_MS = 5 * 60 * 1000,
};

/* Checks */

const char *status_check_name(enum status_check check)
{
    static const char *const names[STATUS_REGISTRATIONS] = {
        "dispatcher", "watch", "cards", "pods", "node", "podresources"};
    return check < STATUS_REGISTRATIONS ? names[check]
                                        : ids_resource_name(check - STATUS_REGISTRATIONS);
}

static int check_thread(int64_t silent_ms, int64_t limit_ms, struct err *err)
{
    if (silent_ms < limit_ms)
        return 0;
    return err_set(err, ERR_TIMEOUT, "thread hangs for %llds",
                   (long long)(silent_ms / 1000));
}

static int check_failure(const struct status_facts *f, const struct step_failure *failure,
                         const char *what, struct err *err)
{
    int64_t duration = f->now_ms - failure->since_ms;
    if (!failure->failures || duration < f->late_ms)
        return 0;
    return err_set(err, failure->err.code, "%s for %llds: %s", what,
                   (long long)(duration / 1000), failure->err.msg);
}

int status_check(const struct status_facts *f, enum status_check check, bool *required,
                 struct err *err)
{
    const struct dispatcher_stats *d = &f->dispatcher;
    const struct err *known = &d->cards_err;
    *required = true;
    switch (check) {
    case STATUS_DISPATCHER:
        return check_thread(f->now_ms - d->alive_ms, DISPATCHER_MS, err);
    case STATUS_WATCH:
        return check_thread(f->now_ms - f->watch.alive_ms, WATCH_MS, err);
    case STATUS_PODS:
        if (!d->listed)
            return err_set(err, ERR_UNAVAILABLE, "the pods are not listed yet%s%s",
                           f->watch.failure.failures ? ": " : "",
                           f->watch.failure.err.msg);
        return check_failure(f, &f->watch.failure, "the pod watch fails", err);
    case STATUS_NODE:
        *required = false;
        return check_failure(f, &d->node, "GET of the Node fails", err);
    case STATUS_PODRESOURCES:
        return check_failure(f, &d->podresources, "podresources calls fail", err);
    case STATUS_CARDS:
        *required = !d->cards && f->now_ms - f->started_ms < STATUS_CARDS_MS;
        break;
    default:
        *required = d->resources[check - STATUS_REGISTRATIONS].wanted;
        known = &d->resources[check - STATUS_REGISTRATIONS].err;
        break;
    }
    return known->code == ERR_NONE ? 0 : err_set(err, known->code, "%s", known->msg);
}

/* Metrics */

/* A sample for each of the first n resources. */
static void by_resource(struct buf *out, const char *name, enum prom_type type,
                        const char *help, int n, const uint64_t *values)
{
    prom_family(out, name, type, help);
    for (int r = 0; r < n; r++)
        prom_labelled(out, name, "resource", ids_resource_name(r), (int64_t)values[r]);
}

void status_write_metrics(struct buf *out, const struct status_facts *f)
{
    const struct dispatcher_stats *d = &f->dispatcher;
    uint64_t up[IDS_RESOURCES], refused = 0;
    prom_family(out, NAME("healthcheck"), PROM_GAUGE,
                "1 if the health check passes, as /healthz reports it.");
    for (int i = STATUS_THREADS; i < STATUS_REGISTRATIONS; i++) {
        bool required;
        prom_labelled(out, NAME("healthcheck"), "name", status_check_name(i),
                      status_check(f, (enum status_check)i, &required, NULL) == 0);
    }
    by_resource(out, NAME("allocations_total"), PROM_COUNTER,
                "Allocations to containers.", IDS_CARD_RESOURCES, d->alloc.allocated);
    for (int r = 0; r < IDS_RESOURCES; r++)
        up[r] = d->resources[r].err.code == ERR_NONE;
    by_resource(out, NAME("registered"), PROM_GAUGE,
                "1 while the kubelet has a ListAndWatch stream open.", IDS_RESOURCES, up);
    prom_family(out, NAME("rejected_requests_total"), PROM_COUNTER,
                "Rejected GetPreferredAllocation and Allocate calls.");
    for (int i = 0; i < REJECTIONS; i++) {
        refused += i == REJECTED_NO_PROMISE ? 0 : d->alloc.rejected[i];
        if (d->alloc.rejected[i] || i == REJECTED_NO_PROMISE)
            prom_labelled(out, NAME("rejected_requests_total"), "reason",
                          alloc_rejection_name((enum alloc_rejection)i),
                          d->alloc.rejected[i]);
    }
    const struct {
        const char *name, *help;
        uint64_t n;
        bool sparse; /* a counter that is written from the first one on */
    } rows[] = {
        {NAME("promises_refused_total"),
         "Rejected calls for pods that do not lack a promise.", refused, false},
        {NAME("mismatches_total"),
         "Pods with a container on a card that was not promised to it.",
         d->alloc.mismatches, false},
        {NAME("recovered_allocations_total"),
         "Allocations recovered from the kubelet's podresources.", d->alloc.recovered,
         true},
        {NAME("reconciled_pods_total"),
         "Comparisons of a pod's allocation with its promise.", d->alloc.reconciled,
         true},
        {NAME("container_allocations"), "Containers that hold device ids.",
         d->allocations, false},
        {NAME("cards"), "Cards in the device list.", d->cards, false},
        {NAME("cards_healthy"), "Healthy cards in the device list.", d->healthy, false},
        {NAME("state_write_failures_total"), "Failed writes of the state file.",
         d->save_failed, true},
        {NAME("limited_containers_total"), "Containers that got libgpushare-limit.so.",
         d->limited, true},
        {NAME("limit_failures_total"), "Containers that started without their limit.",
         d->limit_failed + d->alloc.not_isolated, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].n || !rows[i].sparse)
            prom_one(out, rows[i].name, rows[i].help, (int64_t)rows[i].n);
        else
            prom_family(out, rows[i].name, PROM_COUNTER, rows[i].help);
}
