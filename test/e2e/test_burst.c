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

CLUSTER_MAIN("burst", 400, ARGV("--nodes", "0"), all_fitting_pods_are_bound_and_no_others,
             nodes_are_removed_and_added,
             a_card_that_is_healthy_again_is_used_within_seconds)
