/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>

/*
 * scv-agents, as far as their heartbeats go. The one of n0 renews its Lease whatever
 * happens, the one of n1 hangs now and then; n2 and n3 have the Scv of another daemon and
 * no Lease. Whatever becomes of watches, lists and processes, no replica may take any of
 * n0, n2, n3 for silent; nor when the API server is away for replicas and agents alike.
 */

enum { RENEW_MS = 2000 };

static bool is_silent(const struct replica *r, const char *node)
{
    const struct ledger_node *n =
        ledger_node_find(core_ledger(replica_core(r)), span_of(node));
    return n && n->state == NODE_STALE;
}

void agents_look(struct world *w, const struct replica *r)
{
    static const char *const alive[] = {"n0", "n2", "n3"};
    for (size_t i = 0; i < ARRAY_LEN(alive); i++)
        if (is_silent(r, alive[i]))
            violated(w, "r%d takes %s for silent", replica_id(r), alive[i]);
    w->stats.silent += is_silent(r, "n1");
}

void agents_settled(struct world *w, const struct replica *r)
{
    if (is_silent(r, "n1"))
        violated(w, "at rest r%d still takes n1 for silent", replica_id(r));
}

static void renew(struct world *w, int node)
{
    static const char leases[] =
        "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases";
    cleanup_buf struct buf time = {0};
    char path[160], body[320];
    clock_format_us(&time, wall_ms(w) * 1000);
    snprintf(path, sizeof path, "%s/n%d", leases, node);
    snprintf(body, sizeof body, "{\"spec\":{\"renewTime\":\"%s\"}}", time.p);
    if (api_call(w, "PATCH", path, "application/merge-patch+json", body, NULL) != 404)
        return;
    snprintf(body, sizeof body,
             "{\"apiVersion\":\"coordination.k8s.io/"
             "v1\",\"kind\":\"Lease\",\"metadata\":{\"name\":\"n%d\"},\"spec\":{"
             "\"holderIdentity\":\"n%d\","
             "\"leaseDurationSeconds\":20,\"renewTime\":\"%s\"}}",
             node, node, time.p);
    unsigned status = api_call(w, "POST", leases, "application/json", body, NULL);
    if (status != 201)
        violated(w, "the Lease of n%d could not be made: %u", node, status);
}

static void beat(struct world *w, void *arg)
{
    (void)arg;
    if (w->now_ms >= w->hangs_until && chance(w, 150))
        w->hangs_until = w->now_ms + between(w, 2000, 4 * GRACE_MS);
    if (w->now_ms >= w->agents_cut_until) {
        renew(w, 0);
        if (w->quiet || w->now_ms >= w->hangs_until)
            renew(w, 1);
    }
    at(w, w->now_ms + RENEW_MS, beat, NULL, NULL);
}

void agents_start(struct world *w)
{
    api_call(w, "POST", "/api/v1/namespaces", "application/json",
             "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":"
             "\"nvidia-gpu-scheduler-node-lease\"}}",
             NULL);
    beat(w, NULL);
}
