/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "e2e/audit.h"
#include "lib/burst.h"
#include "lib/cluster.h"
#include "lib/expect.h"

/* 300 pods at once; then pods, nodes and cards that are deleted and added. */

enum { SECONDS = 1000, SOON_MS = 20 * SECONDS };

/* -- the burst -- */

TEST(all_fitting_pods_are_bound_and_no_others)
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

/* Removes a node with its pods. Returns how many. */
static size_t remove_node(const char *name, bool with_scv)
{
    cluster_delete(lib_fmt("/api/v1/nodes/%s", name));
    if (with_scv)
        cluster_delete(lib_fmt("/apis/core.run-linux.com/v1/scvs/%s", name));
    json_t *pods = cluster_list(
               lib_fmt(CLUSTER_PODS "?fieldSelector=spec.nodeName%%3D%s", name)),
           *pod;
    lib_each(pod, pods)
        cluster_delete(lib_fmt(CLUSTER_PODS "/%s", lib_str(pod, "metadata.name")));
    return json_array_size(pods);
}

/* Nodes of two classes are removed, one with its Scv; meanwhile no pod fits. */
TEST(nodes_are_removed_and_added)
{
    static const char *const names[] = {"a03", "a07", "b01", "b09"};
    burst_add_nodes();
    burst_add_pods();
    burst_wait_bound(BURST_FIT);
    size_t gone = 0;
    array_indices(i, names)
        gone += remove_node(names[i], i == 0);
    ck_assert_uint_eq(gone, 16);
    burst_add_pods();
    cluster_agrees();
    ck_assert_uint_eq(burst_bound(), BURST_FIT - gone);
    int64_t begun = lib_now_ms();
    array_indices(i, names)
        burst_return_node(names[i], i == 0);
    burst_wait_bound(BURST_FIT);
    cluster_report("4 nodes come back, and 16 pods are bound", lib_now_ms() - begun);
    burst_check();
}

/* -- cards -- */

TEST(a_card_that_is_healthy_again_is_used_within_seconds)
{
    const int *cards = CARDS(16384, 16384);
    cluster_add_node("n1", "", cards);
    cluster_set_health("n1", cards, "Unhealthy");
    cluster_create_pod("waits", 8, "", "");
    cluster_wait_refused("waits", "no card is healthy");
    cluster_agrees();
    int64_t begun_ns = clock_wall_ns(), begun = lib_now_ms();
    cluster_set_health("n1", cards, "Healthy");
    cluster_wait_running("waits");
    int64_t ms = lib_now_ms() - begun;
    cluster_report("from a card's return to a pod that runs", ms);
    ck_assert_int_le(ms, SOON_MS * LIB_SLOWER);
    /* A change of the Node made kube-scheduler retry. */
    ck_assert_str_ne(
        lib_annotation(peer_get(&cluster.api, "/api/v1/nodes/n1"), "gpushare/room-since"),
        "");
    expect_placed("waits", begun_ns);
    cluster_agrees();
}

CLUSTER_MAIN(400)
