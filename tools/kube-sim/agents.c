/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/agents_priv.h"

#include "base/clock.h"
#include "kube-sim/change_priv.h"
#include "kube-sim/pod_priv.h"

static bool waits(const json_t *pod)
{
    return sim_jsonx_span(pod, "spec.nodeName").n &&
           span_eq(sim_jsonx_span(pod, "status.phase"), SPAN("Pending")) &&
           !sim_jsonx_at(pod, "metadata.deletionTimestamp");
}

void sim_agents_run(struct api *api, const struct object *o, int64_t now_ms)
{
    cleanup_json json_t *pod = sim_object_parse(o);
    if (!waits(pod))
        return;
    sim_pod_run(pod, now_ms);
    sim_change_put(api, o->kind, pod);
}

static void renew(struct api *api, const struct object *o, int64_t now_ms)
{
    cleanup_json json_t *lease = sim_object_parse(o);
    cleanup_buf struct buf now = {0};
    const json_t *notes = sim_jsonx_at(lease, "metadata.annotations");
    if (json_object_get(notes, "kube-sim/frozen"))
        return; /* the agent of this node is simulated as dead */
    clock_format_us(&now, now_ms * 1000);
    sim_jsonx_set_str(sim_jsonx_make(lease, "spec"), "renewTime", now.p);
    sim_change_put(api, o->kind, lease);
}

/* Spreads the renewals evenly over the period, like agents that started at different
 * times. */
void sim_agents_renew(struct api *api, int64_t now_ms)
{
    int64_t period_ms = api->config.renew_leases_ms;
    const struct kind *kind = sim_kind_by_resource(SPAN("leases"));
    struct store *store = sim_api_store(api, kind);
    size_t first = sim_store_lower(store, SPAN("nvidia-gpu-scheduler-node-lease/"));
    size_t end = sim_store_lower(store, SPAN("nvidia-gpu-scheduler-node-lease0"));
    int64_t n = (int64_t)(end - first);
    if (!api->renewed_ms)
        api->renewed_ms = now_ms;
    if (!period_ms || !n)
        return;
    int64_t due = n * (now_ms - api->renewed_ms) / period_ms;
    if (due > n)
        api->renewed_ms =
            now_ms; /* more than one period has passed: renew each Lease once */
    else
        api->renewed_ms += due * period_ms / n;
    for (int64_t i = 0; i < due && i < n; i++)
        renew(api, store->items[first + api->next_lease++ % (size_t)n], now_ms);
}
