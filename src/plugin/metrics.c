/* SPDX-License-Identifier: Apache-2.0 */
#include "base/prom.h"
#include "plugin/gauges.h"

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

static void per_resource(struct buf *out, const struct dispatcher_stats *b)
{
    prom_family(out, NAME("allocations_total"), PROM_COUNTER,
                "Containers that got their ids.");
    for (int r = 0; r < IDS_RESOURCES; r++)
        by_resource(out, NAME("allocations_total"), r, b->alloc.allocated[r]);
    prom_family(out, NAME("registered"), PROM_GAUGE, "Whether the kubelet listens.");
    for (int r = 0; r < IDS_RESOURCES; r++)
        by_resource(out, NAME("registered"), r, b->up[r]);
    prom_family(out, NAME("registrations_total"), PROM_COUNTER,
                "Registrations that were accepted.");
    for (int r = 0; r < IDS_RESOURCES; r++)
        by_resource(out, NAME("registrations_total"), r, b->registered[r]);
}

static struct prom_label call(int i)
{
    return (struct prom_label){"method",
                               span_of(alloc_request_name((enum alloc_request_type)i))};
}

static void per_call(struct buf *out, const struct dispatcher_stats *b)
{
    prom_family(out, NAME("request_duration_seconds"), PROM_SUMMARY,
                "How long calls of the kubelet took.");
    for (int i = 0; i < ALLOC_REQUEST_TYPES; i++) {
        struct prom_label l = call(i);
        prom_seconds(out, NAME("request_duration_seconds_sum"), &l, 1, b->calls[i].sum_us * 1000);
        prom_sample(out, NAME("request_duration_seconds_count"), &l, 1, b->calls[i].n);
    }
    prom_family(out, NAME("request_duration_max_seconds"), PROM_GAUGE, "The longest of them.");
    for (int i = 0; i < ALLOC_REQUEST_TYPES; i++) {
        struct prom_label l = call(i);
        prom_seconds(out, NAME("request_duration_max_seconds"), &l, 1, b->calls[i].max_us * 1000);
    }
}

static void per_part(struct buf *out, const struct parts *parts)
{
    prom_family(out, NAME("part_ok"), PROM_GAUGE,
                "Whether a part of the plugin does its work, as /healthz says it.");
    for (int i = 0; i < PARTS; i++) {
        struct prom_label l = {"part", span_of(part_name((enum part)i))};
        prom_sample(out, NAME("part_ok"), &l, 1,
                    parts_check(parts, (enum part)i, NULL) == 0);
    }
}

void gauges_write(struct buf *out, const struct parts *parts)
{
    const struct dispatcher_stats *b = parts->dispatcher;
    const struct plugin_api_stats *api = parts->api;
    per_part(out, parts);
    per_resource(out, b);
    prom_family(out, NAME("rejected_requests_total"), PROM_COUNTER,
                "Calls of the kubelet that were refused.");
    for (int i = 0; i < REJECTIONS; i++)
        prom_sample(out, NAME("rejected_requests_total"),
                    &(struct prom_label){
                        "reason", span_of(alloc_rejection_name((enum alloc_rejection)i))},
                    1, b->alloc.rejected[i]);
    prom_one(out, NAME("deferred_requests_total"), PROM_COUNTER, "Calls that had to wait for news.",
             b->alloc.deferred);
    prom_one(out, NAME("mismatches_total"), PROM_COUNTER,
             "Pods with a container on another card than was promised.",
             b->alloc.mismatches);
    prom_one(out, NAME("recovered_allocations_total"), PROM_COUNTER,
             "Containers that only the kubelet knew of.", b->alloc.recovered);
    prom_one(out, NAME("reconciled_pods_total"), PROM_COUNTER, "Looks at a pod.",
             b->alloc.reconciled);
    prom_one(out, NAME("container_allocations"), PROM_GAUGE, "Containers that hold ids.", b->allocations);
    prom_one(out, NAME("cards"), PROM_GAUGE, "Cards that are listed.", b->cards);
    prom_one(out, NAME("cards_healthy"), PROM_GAUGE, "Those of them that are healthy.",
             b->healthy);
    prom_one(out, NAME("units_healthy"), PROM_GAUGE, "Units of gpu-mem on them.",
             b->units);
    per_call(out, b);
    prom_one(out, NAME("state_write_failures_total"), PROM_COUNTER,
             "Writes of the state file that failed.", b->save_failed);
    prom_one(out, NAME("pod_patches_total"), PROM_COUNTER, "Pods that were annotated.",
             api->patched);
    prom_one(out, NAME("pod_patch_failures_total"), PROM_COUNTER,
             "... and those that could not be.", api->patch_failed);
    prom_one(out, NAME("events_total"), PROM_COUNTER, "Events that were written.",
             api->events);
    prom_one(out, NAME("event_failures_total"), PROM_COUNTER,
             "... and those that could not be.", api->events_failed);
    prom_one(out, NAME("watch_failures_total"), PROM_COUNTER,
             "Lists and watches that broke.", api->watch_failures);
}
