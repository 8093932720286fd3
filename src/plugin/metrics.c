/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gauges.h"

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP gpushare_plugin_%s %s\n# TYPE gpushare_plugin_%s %s\n", name,
               help, name, type);
}

static void one(struct buf *out, const char *name, const char *type, const char *help,
                uint64_t value)
{
    head(out, name, type, help);
    buf_printf(out, "gpushare_plugin_%s %llu\n", name, (unsigned long long)value);
}

static void labelled(struct buf *out, const char *name, const char *label,
                     const char *value, uint64_t n)
{
    buf_printf(out, "gpushare_plugin_%s{%s=\"%s\"} %llu\n", name, label, value,
               (unsigned long long)n);
}

static void per_resource(struct buf *out, const struct brain_stats *b)
{
    head(out, "granted_total", "counter", "Containers that got their ids.");
    for (int r = 0; r < IDS_RESOURCES; r++)
        labelled(out, "granted_total", "resource", ids_resource_name(r),
                 b->alloc.granted[r]);
    head(out, "registered", "gauge", "Whether the kubelet listens.");
    for (int r = 0; r < IDS_RESOURCES; r++)
        labelled(out, "registered", "resource", ids_resource_name(r), b->up[r]);
    head(out, "registrations_total", "counter", "Registrations that were accepted.");
    for (int r = 0; r < IDS_RESOURCES; r++)
        labelled(out, "registrations_total", "resource", ids_resource_name(r),
                 b->registered[r]);
}

static void seconds(struct buf *out, const char *name, const char *call, uint64_t us)
{
    buf_printf(out, "gpushare_plugin_%s{call=\"%s\"} %llu.%06llu\n", name, call,
               (unsigned long long)(us / 1000000), (unsigned long long)(us % 1000000));
}

static void per_call(struct buf *out, const struct brain_stats *b)
{
    head(out, "call_seconds", "summary", "How long calls of the kubelet took.");
    for (int i = 0; i < ALLOC_ASKS; i++) {
        const char *name = alloc_ask_name((enum alloc_ask_type)i);
        seconds(out, "call_seconds_sum", name, b->calls[i].sum_us);
        labelled(out, "call_seconds_count", "call", name, b->calls[i].n);
    }
    head(out, "call_seconds_max", "gauge", "The longest of them.");
    for (int i = 0; i < ALLOC_ASKS; i++)
        seconds(out, "call_seconds_max", alloc_ask_name((enum alloc_ask_type)i),
                b->calls[i].max_us);
}

void metrics_write(struct buf *out, const struct brain_stats *b,
                   const struct api_stats *api)
{
    per_resource(out, b);
    head(out, "refused_total", "counter", "Calls of the kubelet that were refused.");
    for (int i = 0; i < REFUSALS; i++)
        labelled(out, "refused_total", "reason",
                 alloc_refusal_name((enum alloc_refusal)i), b->alloc.refused[i]);
    one(out, "waited_total", "counter", "Calls that had to wait for news.",
        b->alloc.waited);
    one(out, "mismatches_total", "counter",
        "Pods with a container on another card than was promised.", b->alloc.mismatches);
    one(out, "adopted_total", "counter", "Containers that only the kubelet knew of.",
        b->alloc.adopted);
    one(out, "audited_total", "counter", "Looks at a pod.", b->alloc.audited);
    one(out, "held", "gauge", "Containers that hold ids.", b->grants);
    one(out, "cards", "gauge", "Cards that are listed.", b->cards);
    one(out, "cards_healthy", "gauge", "Those of them that are healthy.", b->healthy);
    one(out, "units_healthy", "gauge", "Units of gpu-mem on them.", b->units);
    per_call(out, b);
    one(out, "state_failures_total", "counter", "Writes of the state file that failed.",
        b->save_failed);
    one(out, "annotated_total", "counter", "Pods that were annotated.", api->patched);
    one(out, "annotate_failures_total", "counter", "... and those that could not be.",
        api->patch_failed);
    one(out, "events_total", "counter", "Events that were written.", api->events);
    one(out, "watch_failures_total", "counter", "Lists and watches that broke.",
        api->watch_failures);
}
