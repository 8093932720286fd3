/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/audit.h"
#include "lib/burst.h"
#include "lib/cluster.h"
#include "lib/expect.h"

/* 300 pods at once; then pods, nodes and cards that are deleted and added. */

enum { SECONDS = 1000, SOON_MS = 20 * SECONDS };

/* -- the burst -- */

START_TEST(all_fitting_pods_are_bound_and_no_others)
{
    int64_t begun = lib_now_ms();
    burst_add_nodes();
    cluster_report("50 nodes are ready", lib_now_ms() - begun);
    begun = lib_now_ms();
    burst_add_pods();
    cluster_report("300 pods are created", lib_now_ms() - begun);
    burst_wait_bound(BURST_FIT);
    cluster_report("the 280 of them that fit are bound", lib_now_ms() - begun);
    burst_check();
    audit_check(AUDIT_EXTENDER);
}

START_TEST(deleted_pods_free_memory)
{
    burst_add_nodes();
    burst_add_pods();
    burst_wait_bound(BURST_FIT);
    for (int i = 0; i < 2; i++) {
        int64_t begun = lib_now_ms();
        ck_assert_uint_eq(burst_delete_pods(3), (BURST_FIT + 2) / 3);
        burst_add_pods();
        burst_wait_bound(BURST_FIT);
        cluster_report("94 are deleted, as many created, and 280 bound again",
                       lib_now_ms() - begun);
        burst_check();
    }
    cluster_delete_pods();
    cluster_agrees();
}

/* Nodes of two classes are removed, one with its Scv; meanwhile no pod fits. */
START_TEST(nodes_are_removed_and_added)
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
    int64_t begun = lib_now_ms();
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        burst_return_node(names[i], i == 0);
    burst_wait_bound(BURST_FIT);
    cluster_report("4 nodes come back, and 16 pods are bound", lib_now_ms() - begun);
    burst_check();
}

/* -- cards -- */

/* The pod was pending; the change that lets it fit happened at `begun`. */
static void check_soon(const char *name, int64_t begun, const char *what)
{
    cluster_wait_running(name);
    int64_t ms = lib_now_ms() - begun;
    cluster_report(what, ms);
    ck_assert_msg(ms <= SOON_MS * LIB_SLOWER, "%s was pending for %lld ms", name,
                  (long long)ms);
}

/* A change of the Node made kube-scheduler retry. */
static void check_marked(const char *node)
{
    cleanup_free char *path = xasprintf("/api/v1/nodes/%s", node);
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", path, NULL);
    json_t *notes = lib_at(j, "metadata.annotations");
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
    int64_t begun_ns = expect_now_ns(), begun = lib_now_ms();
    set_health("n1", cards, "Healthy");
    check_soon("waits", begun, "from a card's return to a pod that runs");
    check_marked("n1");
    expect_placed("waits", begun_ns);
    cluster_agrees();
}

START_TEST(a_card_no_longer_excluded_by_a_configmap_is_used_within_seconds)
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
    int64_t begun = lib_now_ms();
    cleanup_free char *path = xasprintf("%s/unhealthy-gpu-n1", maps);
    json_decref(peer_json(&cluster.api, "PATCH", path, "{\"data\":{\"gpus\":\"0\"}}"));
    lib_wait(cluster_bound("first") || cluster_bound("second"));
    cluster_report("from a ConfigMap's change to a pod that is bound",
                   lib_now_ms() - begun);
    ck_assert(!cluster_bound("first") || !cluster_bound("second"));
    cluster_agrees();
    begun = lib_now_ms();
    json_decref(peer_json(&cluster.api, "DELETE", path, NULL));
    check_soon("first", begun, "from the end of a ConfigMap to a pod that runs");
    check_soon("second", begun, "... and to the other one");
    cluster_agrees();
}

/* Whether the extender has the cards of the node from this source. */
static bool knows_from(const char *node, const char *source)
{
    cleanup_json json_t *j = extender_inspect(&cluster.extender, node);
    return strcmp(lib_str(j, "source"), source) == 0;
}

/* Without an Scv the capacity of the Node counts; with a Lease of scv-agent, the node
 * has no cards. */
START_TEST(an_scv_that_is_deleted_manually)
{
    static const char leases[] =
        "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases";
    cluster_add_node("n1", NULL, NULL, CARDS(16384, 16384));
    cluster_create_pod("before", 10, "", "");
    cluster_wait_running("before");
    cluster_create(leases, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":"
                           "\"Lease\",\"metadata\":{\"name\":\"n1\"},\"spec\":{}}");
    json_decref(peer_json(&cluster.api, "DELETE", SCVS "/n1", NULL));
    lib_wait(knows_from("n1", "none"));
    cluster_create_pod("waits", 6, "", "");
    cluster_wait_refused("waits", "the node's Scv object is missing");
    int64_t begun_ns = expect_now_ns(), begun = lib_now_ms();
    cluster_create_scv("n1", CARDS(16384, 16384));
    check_soon("waits", begun, "from an Scv's return to a pod that runs");
    expect_placed("waits", begun_ns); /* beside the earlier pod */
    expect_on("waits", "n1", "0");
    cluster_agrees();

    cleanup_free char *lease = xasprintf("%s/n1", leases);
    json_decref(peer_json(&cluster.api, "DELETE", lease, NULL));
    json_decref(peer_json(&cluster.api, "DELETE", SCVS "/n1", NULL));
    lib_wait(knows_from("n1", "capacity"));
    cluster_create_pod("by-capacity", 7, "", "");
    cluster_wait_running("by-capacity");
    expect_on("by-capacity", "n1", "1");
    cluster_create_scv("n1", CARDS(16384, 16384));
    cluster_await_node("n1");
    cluster_agrees();
}

CLUSTER_MAIN("burst", 400, ARGV("--nodes", "0"), all_fitting_pods_are_bound_and_no_others,
             deleted_pods_free_memory, nodes_are_removed_and_added,
             a_card_that_is_healthy_again_is_used_within_seconds,
             a_card_no_longer_excluded_by_a_configmap_is_used_within_seconds,
             an_scv_that_is_deleted_manually)
