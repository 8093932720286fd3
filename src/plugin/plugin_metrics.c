/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plugin_metrics.h"

#include "base/prom.h"

#define NAME(rest) "gpushare_plugin_" rest

static struct prom_label resource(int r)
{
    return (struct prom_label){"resource", span_of(ids_resource_name(r))};
}

static void by_resource(struct buf *out, const char *name, int r, uint64_t n)
{
    struct prom_label l = resource(r);
    prom_sample(out, name, &l, 1, (int64_t)n);
}

static void per_resource(struct buf *out, const struct dispatcher_stats *stats)
{
    prom_family(out, NAME("allocations_total"), PROM_COUNTER,
                "Allocations to containers.");
    for (int r = 0; r < IDS_CARD_RESOURCES; r++)
        by_resource(out, NAME("allocations_total"), r, stats->alloc.allocated[r]);
    prom_family(out, NAME("registered"), PROM_GAUGE,
                "1 while the kubelet has a ListAndWatch stream open.");
    for (int r = 0; r < IDS_RESOURCES; r++)
        by_resource(out, NAME("registered"), r, stats->up[r]);
    prom_family(out, NAME("registrations_total"), PROM_COUNTER,
                "Registrations that the kubelet accepted.");
    for (int r = 0; r < IDS_RESOURCES; r++)
        by_resource(out, NAME("registrations_total"), r, stats->registered[r]);
}

static struct prom_label method(int i)
{
    return (struct prom_label){"method",
                               span_of(alloc_request_name((enum alloc_request_type)i))};
}

static void per_method(struct buf *out, const struct dispatcher_stats *stats)
{
    prom_family(out, NAME("request_duration_seconds"), PROM_SUMMARY,
                "Duration of the kubelet's device plugin calls.");
    for (int i = 0; i < ALLOC_REQUEST_TYPES; i++) {
        struct prom_label l = method(i);
        prom_seconds(out, NAME("request_duration_seconds_sum"), &l, 1,
                     stats->calls[i].sum_us * 1000);
        prom_sample(out, NAME("request_duration_seconds_count"), &l, 1,
                    stats->calls[i].n);
    }
    prom_family(out, NAME("request_duration_max_seconds"), PROM_GAUGE,
                "Longest duration of a call.");
    for (int i = 0; i < ALLOC_REQUEST_TYPES; i++) {
        struct prom_label l = method(i);
        prom_seconds(out, NAME("request_duration_max_seconds"), &l, 1,
                     stats->calls[i].max_us * 1000);
    }
}

static void health(struct buf *out, const struct health_checks *checks)
{
    prom_family(out, NAME("healthcheck"), PROM_GAUGE,
                "1 if the health check passes, as /healthz reports it.");
    for (int i = 0; i < HEALTH_CHECKS; i++) {
        struct prom_label l = {"name", span_of(health_checks_name((enum health_check)i))};
        prom_sample(out, NAME("healthcheck"), &l, 1,
                    health_checks_run(checks, (enum health_check)i, NULL) == 0);
    }
}

void plugin_metrics_write(struct buf *out, const struct health_checks *checks)
{
    const struct dispatcher_stats *stats = checks->dispatcher;
    const struct plugin_api_stats *api = checks->api;
    health(out, checks);
    per_resource(out, stats);
    prom_family(out, NAME("rejected_requests_total"), PROM_COUNTER,
                "Rejected GetPreferredAllocation and Allocate calls.");
    for (int i = 0; i < REJECTIONS; i++)
        prom_sample(out, NAME("rejected_requests_total"),
                    &(struct prom_label){
                        "reason", span_of(alloc_rejection_name((enum alloc_rejection)i))},
                    1, stats->alloc.rejected[i]);
    prom_one(out, NAME("deferred_requests_total"), PROM_COUNTER,
             "Calls that waited for the pod watch.", stats->alloc.deferred);
    prom_one(out, NAME("mismatches_total"), PROM_COUNTER,
             "Pods with a container on a card that was not promised to it.",
             stats->alloc.mismatches);
    prom_one(out, NAME("recovered_allocations_total"), PROM_COUNTER,
             "Allocations recovered from the kubelet's podresources.",
             stats->alloc.recovered);
    prom_one(out, NAME("reconciled_pods_total"), PROM_COUNTER,
             "Comparisons of a pod's allocation with its promise.",
             stats->alloc.reconciled);
    prom_one(out, NAME("container_allocations"), PROM_GAUGE,
             "Containers that hold device ids.", stats->allocations);
    prom_one(out, NAME("cards"), PROM_GAUGE, "Cards in the device list.", stats->cards);
    prom_one(out, NAME("cards_healthy"), PROM_GAUGE, "Healthy cards in the device list.",
             stats->healthy);
    prom_one(out, NAME("units_healthy"), PROM_GAUGE,
             "Units of aliyun.com/gpu-mem on healthy cards.", stats->units);
    per_method(out, stats);
    prom_one(out, NAME("state_write_failures_total"), PROM_COUNTER,
             "Failed writes of the state file.", stats->save_failed);
    prom_one(out, NAME("limited_containers_total"), PROM_COUNTER,
             "Containers that got libgpushare-limit.so.", stats->limited);
    prom_one(out, NAME("limit_failures_total"), PROM_COUNTER,
             "Containers that started without their limit.",
             stats->limit_failed + stats->alloc.not_isolated);
    prom_one(out, NAME("pod_patches_total"), PROM_COUNTER, "Pods annotated.",
             api->patched);
    prom_one(out, NAME("pod_patch_failures_total"), PROM_COUNTER,
             "Pods that could not be annotated.", api->patch_failed);
    prom_one(out, NAME("events_total"), PROM_COUNTER, "Events written.", api->events);
    prom_one(out, NAME("event_failures_total"), PROM_COUNTER,
             "Events that could not be written.", api->events_failed);
    prom_one(out, NAME("watch_failures_total"), PROM_COUNTER,
             "Failed pod lists and watches.", api->watch_failures);
}
