/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>

/*
 * The heartbeats of scv-agents. n0 always renews its Lease, n1 is sometimes suspended; n2
 * and n3 have the Scv of another daemon and no Lease. Whatever happens to watches, lists
 * and processes, n0, n2 and n3 must never be stale in any replica; not even when the API
 * server is unreachable for replicas and agents alike.
 */

enum { RENEW_MS = 2000 };

static bool is_stale(const struct replica *r, const char *node)
{
    const struct ledger_node *n =
        ledger_node_find(core_ledger(replica_core(r)), span_of(node));
    return n && n->state == NODE_STALE;
}

void agents_check(struct world *w, const struct replica *r)
{
    static const char *const alive[] = {"n0", "n2", "n3"};
    for (size_t i = 0; i < ARRAY_LEN(alive); i++)
        if (is_stale(r, alive[i]))
            violated(w, "r%d has a stale heartbeat of %s", replica_id(r), alive[i]);
    w->stats.stale += is_stale(r, "n1");
}

void agents_settled(struct world *w, const struct replica *r)
{
    if (is_stale(r, "n1"))
        violated(w, "at rest r%d still has a stale heartbeat of n1", replica_id(r));
}

static void renew(struct world *w, int node)
{
    static const char leases[] =
        "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases";
    cleanup_buf struct buf time = {0};
    char body[320];
    clock_format_us(&time, wall_ms(w) * 1000);
    snprintf(body, sizeof body, "{\"spec\":{\"renewTime\":\"%s\"}}", time.p);
    if (api_call(w, "PATCH", body, "%s/n%d", leases, node) != 404)
        return;
    snprintf(body, sizeof body,
             "{\"apiVersion\":\"coordination.k8s.io/"
             "v1\",\"kind\":\"Lease\",\"metadata\":{\"name\":\"n%d\"},\"spec\":{"
             "\"holderIdentity\":\"n%d\","
             "\"leaseDurationSeconds\":20,\"renewTime\":\"%s\"}}",
             node, node, time.p);
    unsigned status = api_call(w, "POST", body, "%s", leases);
    if (status != 201)
        violated(w, "cannot create the Lease of n%d: %u", node, status);
}

static void renew_leases(struct world *w, void *arg)
{
    (void)arg;
    if (w->now_ms >= w->hangs_until && chance(w, 150))
        w->hangs_until = w->now_ms + between(w, 2000, 4 * GRACE_MS);
    if (w->now_ms >= w->agents_cut_until) {
        renew(w, 0);
        if (w->quiet || w->now_ms >= w->hangs_until)
            renew(w, 1);
    }
    at(w, w->now_ms + RENEW_MS, renew_leases, NULL, NULL);
}

void agents_start(struct world *w)
{
    api_call(w, "POST",
             "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":"
             "\"nvidia-gpu-scheduler-node-lease\"}}",
             "/api/v1/namespaces");
    renew_leases(w, NULL);
}
