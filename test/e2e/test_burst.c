/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "e2e/audit.h"
#include "e2e/burst.h"
#include "e2e/cluster.h"
#include "e2e/expect.h"

/* 300 pods at once, and then pods, nodes and cards that come and go. */

enum { SECONDS = 1000, SOON_MS = 10 * SECONDS };

/* -- the burst -- */

START_TEST(all_that_fits_is_bound_and_nothing_else)
{
    int64_t begun = kit_now_ms();
    burst_add_nodes();
    cluster_measured("50 nodes are ready", kit_now_ms() - begun);
    begun = kit_now_ms();
    burst_add_pods();
    cluster_measured("300 pods are created", kit_now_ms() - begun);
    burst_wait_bound(BURST_FIT);
    cluster_measured("the 280 of them that fit are bound", kit_now_ms() - begun);
    burst_check();
    audit_check();
}

START_TEST(what_is_deleted_makes_room)
{
    burst_add_nodes();
    burst_add_pods();
    burst_wait_bound(BURST_FIT);
    for (int i = 0; i < 2; i++) {
        int64_t begun = kit_now_ms();
        ck_assert_uint_eq(burst_delete_pods(3), (BURST_FIT + 2) / 3);
        burst_add_pods();
        burst_wait_bound(BURST_FIT);
        cluster_measured("94 are deleted, as many created, and 280 bound again",
                         kit_now_ms() - begun);
        burst_check();
    }
    cluster_delete_pods();
    cluster_agrees();
}

/* Nodes of two classes go, one of them with its Scv; for a while nothing has room. */
START_TEST(nodes_leave_and_come_back)
{
    static const char *const names[] = {"a03", "a07", "b01", "b09"};
    burst_add_nodes();
    burst_add_pods();
    burst_wait_bound(BURST_FIT);
    size_t gone = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        gone += burst_remove_node(names[i], i == 0);
    ck_assert_uint_eq(gone, 16);
    burst_add_pods();
    cluster_agrees();
    ck_assert_uint_eq(burst_bound(), BURST_FIT - gone);
    int64_t begun = kit_now_ms();
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        burst_return_node(names[i], i == 0);
    burst_wait_bound(BURST_FIT);
    cluster_measured("4 nodes come back, and 16 pods are bound", kit_now_ms() - begun);
    burst_check();
}

/* -- cards -- */

/* The pod has waited; what it waited for happened at `begun`. */
static void check_soon(const char *name, int64_t begun, const char *what)
{
    cluster_wait_running(name);
    int64_t ms = kit_now_ms() - begun;
    cluster_measured(what, ms);
    ck_assert_msg(ms <= SOON_MS * KIT_SLOWER, "%s has waited for %lld ms", name,
                  (long long)ms);
}

/* kube-scheduler was told by a change of the Node. */
static void check_marked(const char *node)
{
    cleanup_free char *path = xasprintf("/api/v1/nodes/%s", node);
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", path, NULL);
    json_t *notes = kit_at(j, "metadata.annotations");
    ck_assert_ptr_nonnull(json_object_get(notes, "gpushare/room-since"));
}

#define SCVS "/apis/core.run-linux.com/v1/scvs"

static void set_health(const char *node, const int *mib, const char *health)
{
    cleanup_buf struct buf list = {0};
    for (int i = 0; mib[i]; i++)
        buf_printf(&list,
                   "%s{\"id\":%d,\"uuid\":\"GPU-%s-%d\",\"health\":\"%s\",\"model\":"
                   "\"Tesla T4\",\"totalMemory\":%d,\"freeMemory\":%d}",
                   i ? "," : "", i, node, i, health, mib[i], mib[i]);
    cleanup_free char *path = xasprintf(SCVS "/%s", node);
    cleanup_free char *body = xasprintf("{\"status\":{\"cardList\":[%s]}}", list.p);
    json_decref(peer_json(&cluster.api, "PATCH", path, body));
}

START_TEST(a_card_that_is_healthy_again_is_used_within_seconds)
{
    const int *cards = CARDS(16384, 16384);
    cluster_add_node("n1", NULL, NULL, cards);
    set_health("n1", cards, "Unhealthy");
    cluster_create_pod("waits", 8, "", "");
    cluster_wait_refused("waits", "no card is healthy");
    cluster_agrees();
    int64_t begun_ns = expect_now_ns(), begun = kit_now_ms();
    set_health("n1", cards, "Healthy");
    check_soon("waits", begun, "from a card's return to a pod that runs");
    check_marked("n1");
    expect_placed("waits", begun_ns);
    cluster_agrees();
}

START_TEST(a_card_that_no_configmap_takes_out_any_more_is_used_within_seconds)
{
    static const char maps[] = "/api/v1/namespaces/kube-system/configmaps";
    cluster_create(maps,
                   "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":"
                   "\"unhealthy-gpu-n1\",\"labels\":{\"test\":\"\"}},\"data\":{\"gpus\":"
                   "\"0,1\"}}");
    cluster_add_node("n1", NULL, NULL, CARDS(16384, 16384));
    cluster_create_pod("first", 8, "", "");
    cluster_create_pod("second", 16, "", "");
    cluster_wait_refused("first", "no card is healthy");
    cluster_wait_refused("second", "no card is healthy");
    int64_t begun = kit_now_ms();
    cleanup_free char *path = xasprintf("%s/unhealthy-gpu-n1", maps);
    json_decref(peer_json(&cluster.api, "PATCH", path, "{\"data\":{\"gpus\":\"0\"}}"));
    kit_wait(cluster_bound("first") || cluster_bound("second"));
    cluster_measured("from a ConfigMap's change to a pod that is bound",
                     kit_now_ms() - begun);
    ck_assert(!cluster_bound("first") || !cluster_bound("second"));
    cluster_agrees();
    begun = kit_now_ms();
    json_decref(peer_json(&cluster.api, "DELETE", path, NULL));
    check_soon("first", begun, "from the end of a ConfigMap to a pod that runs");
    check_soon("second", begun, "... and to the other one");
    cluster_agrees();
}

/* Does the extender know the node's cards from there? */
static bool knows_from(const char *node, const char *source)
{
    cleanup_json json_t *j = extender_inspect(&cluster.extender, node);
    return strcmp(kit_str(j, "source"), source) == 0;
}

/* Without an Scv the Node's capacity counts; where scv-agent renews a Lease, nothing. */
START_TEST(an_scv_that_is_deleted_by_hand)
{
    static const char leases[] =
        "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases";
    cluster_add_node("n1", NULL, NULL, CARDS(16384, 16384));
    cluster_create_pod("before", 10, "", "");
    cluster_wait_running("before");
    cluster_create(leases, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":"
                           "\"Lease\",\"metadata\":{\"name\":\"n1\"},\"spec\":{}}");
    json_decref(peer_json(&cluster.api, "DELETE", SCVS "/n1", NULL));
    kit_wait(knows_from("n1", "none"));
    cluster_create_pod("waits", 6, "", "");
    cluster_wait_refused("waits", "the node's Scv object is missing");
    int64_t begun_ns = expect_now_ns(), begun = kit_now_ms();
    cluster_create_scv("n1", CARDS(16384, 16384));
    check_soon("waits", begun, "from an Scv's return to a pod that runs");
    expect_placed("waits", begun_ns); /* beside the pod of before */
    expect_on("waits", "n1", "0");
    cluster_agrees();

    cleanup_free char *lease = xasprintf("%s/n1", leases);
    json_decref(peer_json(&cluster.api, "DELETE", lease, NULL));
    json_decref(peer_json(&cluster.api, "DELETE", SCVS "/n1", NULL));
    kit_wait(knows_from("n1", "capacity"));
    cluster_create_pod("by-capacity", 7, "", "");
    cluster_wait_running("by-capacity");
    expect_on("by-capacity", "n1", "1");
    cluster_create_scv("n1", CARDS(16384, 16384));
    cluster_await_node("n1");
    cluster_agrees();
}

CLUSTER_MAIN("burst", 400, ARGV("--nodes", "0"), all_that_fits_is_bound_and_nothing_else,
             what_is_deleted_makes_room, nodes_leave_and_come_back,
             a_card_that_is_healthy_again_is_used_within_seconds,
             a_card_that_no_configmap_takes_out_any_more_is_used_within_seconds,
             an_scv_that_is_deleted_by_hand)
