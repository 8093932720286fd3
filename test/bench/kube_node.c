/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/kube_node.h"

#include <inttypes.h>

#include "base/mem.h"
#include "lib/cluster.h"

void kube_node_post(const char *path, const char *body)
{
    json_decref(peer_json(&cluster.api, "POST", path, body));
}

void kube_node_stop_programs(void)
{
    cluster_stop("kube-scheduler", "KILL");
    cluster_stop("gpushare-extender", "TERM");
    cluster_stop("kwok", "KILL");
    cluster_stop("kube-controller-manager", "KILL");
}

static void create_scv(const struct kube_node *n)
{
    cleanup_buf struct buf scv = {0};
    buf_printf(&scv,
               "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\","
               "\"metadata\":{\"name\":\"%.*s\"},\"spec\":{\"updateInterval\":1000},"
               "\"status\":{\"cardNumber\":%u,\"updateTime\":\"2026-11-21T09:00:00Z\","
               "\"cardList\":[",
               SPAN_ARG(n->name), n->cards);
    for (uint32_t k = 0; k < n->cards; k++)
        buf_printf(&scv,
                   "%s{\"id\":%u,\"uuid\":\"GPU-%.*s-%u\",\"health\":\"Healthy\","
                   "\"model\":\"%.*s\",\"totalMemory\":%d,\"freeMemory\":%d}",
                   k ? "," : "", k, SPAN_ARG(n->name), k, SPAN_ARG(n->model), n->card_mib,
                   n->card_mib);
    buf_adds(&scv, "]}}");
    kube_node_post("/apis/core.run-linux.com/v1/scvs", scv.p);
}

void kube_node_create(const struct kube_node *n)
{
    cleanup_buf struct buf node = {0};
    if (n->cards)
        create_scv(n);
    buf_printf(&node,
               "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%.*s\","
               "\"labels\":{\"kubernetes.io/hostname\":\"%.*s\"}},\"status\":{"
               "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}],"
               "\"capacity\":{\"cpu\":\"%" PRId64 "m\",\"memory\":\"%" PRId64 "Mi\","
               "\"pods\":\"%d\"",
               SPAN_ARG(n->name), SPAN_ARG(n->name), n->cpu_milli, n->memory_mib,
               n->pods);
    if (n->cards)
        buf_printf(&node,
                   ",\"aliyun.com/gpu-mem\":\"%u\",\"aliyun.com/gpu-count\":\"%u\"",
                   n->cards * n->card_units, n->cards);
    buf_adds(&node, "}}}");
    kube_node_post("/api/v1/nodes", node.p);
    kube_node_taint(n->name, "null"); /* the API server taints each new Node */
}

void kube_node_taint(struct span name, const char *taints)
{
    cleanup_free char *path = xasprintf("/api/v1/nodes/%.*s", SPAN_ARG(name));
    cleanup_free char *patch = xasprintf("{\"spec\":{\"taints\":%s}}", taints);
    json_decref(peer_json(&cluster.api, "PATCH", path, patch));
}
