/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/other_plugin.h"
#include "lib/attempt.h"

/*
 * The device plugin where somebody else has been at the kubelet: a pod that no scheduler
 * has seen, and another plugin before it. (test/node and test/integration/test_plugin have
 * requests for ids that were not promised.)
 */

/* -- a pod that nobody could promise anything -- */

static bool is_marked(const char *name)
{
    return strcmp(
               lib_annotation(lib_find(cluster_list(CLUSTER_PODS), "metadata.name", name),
                              "ALIYUN_COM_GPU_MEM_ASSIGNED"),
               "true") == 0;
}

TEST(a_static_pod_gets_a_card_of_its_own)
{
    if (!node_up())
        return;
    node_create("one", "one-p");
    ck_assert_uint_eq(look_check(), 1);
    int64_t begun = lib_now_ms();
    node_create_static("equal", "static");
    lib_wait(is_marked("static-" NODE));
    cluster_report("a static pod has its card", lib_now_ms() - begun);
    /* What it sees, what the kubelet shows, its annotations and the ledger agree. */
    ck_assert_uint_eq(look_check(), 2);
    json_t *bound = cluster_pod("one-p"), *pod = cluster_pod("static-" NODE);
    ck_assert_str_eq(lib_annotation(bound, "gpushare/card-uuid"), node_cards[0].uuid);
    ck_assert_str_ne(lib_annotation(pod, "gpushare/card-uuid"), node_cards[0].uuid);
    /* What it holds is not promised to anybody else. */
    node_create("whole", "whole-p");
    node_create("one", "one-q");
    ck_assert_uint_eq(look_check(), 4);
    node_remove_static("static");
    lib_wait(cluster_is_gone("static-" NODE));
    look_finish();
}

/* -- the Go plugin -- */

enum { BEFORE = 8, AFTER = 20 };

static size_t give(const char *name, struct dp_entry envs[8])
{
    static const char *const keys[] = {"ALIYUN_COM_GPU_MEM_IDX",
                                       "ALIYUN_COM_GPU_MEM_POD"};
    json_t *pod = cluster_pod(name);
    peer_do(&cluster.api, "PATCH", lib_fmt(CLUSTER_PODS "/%s", name),
            "{\"metadata\":{\"annotations\":{"
            "\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}}}");
    envs[0] = (struct dp_entry){SPAN("NVIDIA_VISIBLE_DEVICES"),
                                span_of(lib_annotation(pod, keys[0]))};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        envs[i + 1] =
            (struct dp_entry){span_of(keys[i]), span_of(lib_annotation(pod, keys[i]))};
    return 1 + ARRAY_LEN(keys);
}

/* Its ids are <UUID>-_-<n>; those of the last card come first. */
static struct other_plugin go = {
    .resource = "aliyun.com/gpu-mem", .socket = "go.sock", .give = give};

static void start_go(void)
{
    go.ids = lib_own(json_array());
    for (int i = NODE_CARDS - 1; i >= 0; i--)
        for (int n = 0; n < node_cards[i].units; n++)
            json_array_append_new(go.ids, json_sprintf("%s-_-%d", node_cards[i].uuid, n));
    other_plugin_start(&go);
}

/* The pods of before have not been touched. */
static void check_not_restarted(void)
{
    json_t *pod;
    lib_each(pod, cluster_list(CLUSTER_PODS)) {
        ck_assert_at(pod, "status.phase", "Running");
        ck_assert_int_eq(lib_int(pod, "status.containerStatuses.0.restartCount"), 0);
    }
}

TEST(allocations_of_the_go_plugin_stay)
{
    if (!node_up())
        return;
    attempt_without_policies(); /* this process writes what the Go plugin writes */
    node_stop_plugin();
    start_go();
    for (int i = 0; i < BEFORE; i++)
        other_plugin_run(lib_fmt("go-%d", i),
                         node_pod(i % 2 ? "one" : "equal", lib_fmt("go-%d", i)));
    other_plugin_stop();
    ck_assert_contains(lib_file(NODE_PLUGINS "/kubelet_internal_checkpoint"), "-_-");
    node_kill("kubelet");
    node_start_plugin(NULL);
    node_wait_well();
    ck_assert_uint_eq(look_check(), BEFORE);
    check_not_restarted();
    for (int i = 0; i < AFTER; i++)
        node_create("equal", lib_fmt("equal-%d", i));
    ck_assert_uint_eq(look_check(), BEFORE + AFTER);
    check_not_restarted();
    lib_wait(node_metric("reconciled_pods_total") >= BEFORE + AFTER);
    ck_assert(node_metric("mismatches_total") == 0);
    ck_assert_uint_eq(cluster_events("reason=GPUMismatch", ""), 0);
    printf("measured: containers of a Go plugin: %d; beside them new ones: %d\n", BEFORE,
           AFTER);
    look_tell();
    cluster_delete_pods();
}

NODE_MAIN
