/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The health checks and metrics of the device plugin.
 */

#include "node/status.h"

#include "base/mem.h"
#include "base/prom.h"
#include "domain/scv.h"

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
    /* What the dispatcher said before it hung is not current. */
    if (check_thread(f->now_ms - d->alive_ms, DISPATCHER_MS, err))
        return -1;
    switch (check) {
    case STATUS_DISPATCHER:
        return 0;
    case STATUS_WATCH:
        return check_thread(f->now_ms - d->watch.alive_ms, WATCH_MS, err);
    case STATUS_PODS:
        if (!d->listed)
            return err_set(err, ERR_UNAVAILABLE, "the pods are not listed yet%s%s",
                           d->watch.failure.failures ? ": " : "",
                           d->watch.failure.err.msg);
        return check_failure(f, &d->watch.failure, "the pod watch fails", err);
    case STATUS_NODE:
        *required = false;
        return check_failure(f, &d->node, "GET of the Node fails", err);
    case STATUS_PODRESOURCES:
        return check_failure(f, &d->podresources, "podresources calls fail", err);
    case STATUS_CARDS:
        *required = !d->cards && f->now_ms - f->started_ms < STATUS_CARDS_MS;
        break;
    default:
        known = &d->resources[check - STATUS_REGISTRATIONS].err;
        /* A takeover begins beside HAMi's plugin, and the Scv says `unserved`: the program
         * works. */
        *required =
            d->resources[check - STATUS_REGISTRATIONS].wanted &&
            !(check - STATUS_REGISTRATIONS == IDS_DIALECT && known->code == ERR_CONFLICT);
        if (check - STATUS_REGISTRATIONS == IDS_DIALECT && known->code == ERR_NOT_FOUND)
            return 0; /* as on most nodes */
        break;
    }
    return known->code == ERR_NONE ? 0 : err_set(err, known->code, "%s", known->msg);
}

/* While nobody knows who serves it, as when a kubelet starts, nothing changes. */
struct span status_dialect(const struct dispatcher_stats *d, bool *waits)
{
    const enum err_code code = d->resources[IDS_DIALECT].err.code;
    const bool hami = scv_dialect_of(span_of(d->dialect)) == SCV_DIALECT_HAMI;
    *waits = d->node_read && hami && code == ERR_UNAVAILABLE;
    if (!d->node_read || *waits)
        return (struct span){0};
    return span_of(hami && code != ERR_NONE ? SCV_UNSERVED : d->dialect);
}

/* Metrics */

void status_write_metrics(struct buf *out, const struct status_facts *f)
{
    const struct dispatcher_stats *d = &f->dispatcher;
    uint64_t refused = 0;
    const bool hangs = f->now_ms - d->alive_ms >= DISPATCHER_MS;
    prom_family(out, NAME("healthcheck"), PROM_GAUGE,
                "1 if the health check passes, as /healthz reports it.");
    for (int i = STATUS_THREADS; i < STATUS_REGISTRATIONS; i++) {
        bool required;
        prom_labelled(out, NAME("healthcheck"), "name", status_check_name(i),
                      status_check(f, (enum status_check)i, &required, NULL) == 0);
    }
    prom_family(out, NAME("allocations_total"), PROM_COUNTER,
                "Allocations to containers.");
    for (int r = 0; r < IDS_CARD_RESOURCES; r++)
        if (r != IDS_DIALECT || d->resources[r].err.code != ERR_NOT_FOUND)
            prom_labelled(out, NAME("allocations_total"), "resource",
                          ids_resource_name(r), (int64_t)d->alloc.allocated[r]);
    for (int other = 0; other < 2; other++) {
        const char *name = other ? NAME("other_plugin") : NAME("registered");
        prom_family(out, name, PROM_GAUGE,
                    other ? "1 while another device plugin serves the resource."
                          : "1 while the kubelet has a ListAndWatch stream open.");
        for (int r = 0; r < IDS_RESOURCES && !hangs; r++) {
            const enum err_code code = d->resources[r].err.code;
            if (code != ERR_NOT_FOUND) /* switched off */
                prom_labelled(out, name, "resource", ids_resource_name(r),
                              code == (other ? ERR_CONFLICT : ERR_NONE));
        }
    }
    prom_family(out, NAME("rejected_requests_total"), PROM_COUNTER,
                "Rejected GetPreferredAllocation and Allocate calls.");
    for (int i = 0; i < REJECTIONS; i++) {
        refused += i == REJECTED_NO_PROMISE ? 0 : d->alloc.rejected[i];
        if (d->alloc.rejected[i] || i == REJECTED_NO_PROMISE)
            prom_labelled(out, NAME("rejected_requests_total"), "reason",
                          rejection_name((enum rejection_reason)i), d->alloc.rejected[i]);
    }
    prom_family(out, NAME("isolation"), PROM_GAUGE,
                "1 if containers of this node can be held to their promise by it.");
    for (uint8_t bit = 1; bit < SCV_ISOLATION_KNOWN && !hangs;
         bit = (uint8_t)(bit << 1)) {
        cleanup_buf struct buf word = {0};
        scv_isolation_add(&word, bit, ", ");
        prom_labelled(out, NAME("isolation"), "by", word.p, (d->isolation & bit) != 0);
    }
    const struct {
        const char *name, *help;
        uint64_t n;
        bool sparse; /* a counter that is written from the first one on */
        bool stale;  /* a gauge that is not current */
    } rows[] = {
        {NAME("promises_refused_total"),
         "Rejected calls for pods that do not lack a promise.", refused, false, false},
        {NAME("mismatches_total"),
         "Pods with a container on a card that was not promised to it.",
         d->alloc.mismatches, false, false},
        {NAME("recovered_allocations_total"),
         "Allocations recovered from the kubelet's podresources.", d->alloc.recovered,
         true, false},
        {NAME("reconciled_pods_total"),
         "Comparisons of a pod's allocation with its promise.", d->alloc.reconciled, true,
         false},
        {NAME("container_allocations"), "Containers that hold device ids.",
         d->allocations, false, hangs},
        {NAME("cards"), "Cards in the device list.", d->cards, false, hangs},
        {NAME("cards_healthy"), "Healthy cards in the device list.", d->healthy, false,
         hangs},
        {NAME("state_write_failures_total"), "Failed writes of the state file.",
         d->save_failed, true, false},
        {NAME("limited_containers_total"), "Containers that got libgpushare-limit.so.",
         d->limited, true, false},
        {NAME("limit_failures_total"), "Containers that started without their limit.",
         d->limit_failed + d->alloc.not_isolated, false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].stale)
            continue;
        else if (rows[i].n || !rows[i].sparse)
            prom_one(out, rows[i].name, rows[i].help, (int64_t)rows[i].n);
        else
            prom_family(out, rows[i].name, PROM_COUNTER, rows[i].help);
}
