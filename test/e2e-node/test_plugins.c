/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "e2e-node/between.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/standin.h"
#include "lib/attempt.h"

/*
 * The device plugin where somebody else has been at the kubelet: a pod that no scheduler
 * has seen, another plugin before it, and somebody who hands out ids as he likes.
 */

#define CHECKPOINT "/var/lib/kubelet/device-plugins"

static const char *note(const json_t *pod, const char *key)
{
    const char *text =
        json_string_value(json_object_get(lib_at(pod, "metadata.annotations"), key));
    return text ? text : "";
}

/* -- a pod that nobody could promise anything -- */

static bool is_marked(const char *name)
{
    cleanup_free char *path = xasprintf(CLUSTER_PODS "/%s", name);
    cleanup_buf struct buf reply = {0};
    if (peer_call(&cluster.api, "GET", path, NULL, &reply) != 200)
        return false;
    cleanup_json json_t *pod = json_loadb(reply.p, reply.n, 0, NULL);
    return strcmp(note(pod, "ALIYUN_COM_GPU_MEM_ASSIGNED"), "true") == 0;
}

START_TEST(a_static_pod_gets_a_card_of_its_own)
{
    node_up();
    if (!node_is_real()) {
        printf("measured: no static pod: the played kubelet reads no manifests; "
               "test/plugin/test_alloc has them\n");
        node_down();
        return;
    }
    node_create("one", "one-p");
    ck_assert_uint_eq(look_check(), 1);
    int64_t begun = lib_now_ms();
    node_create_static("equal", "static");
    lib_wait(is_marked("static-" NODE));
    cluster_report("a static pod has its card", lib_now_ms() - begun);
    /* What it sees, what the kubelet shows, its annotations and the ledger agree. */
    ck_assert_uint_eq(look_check(), 2);
    cleanup_json json_t *bound = cluster_pod("one-p"), *pod = cluster_pod("static-" NODE);
    ck_assert_str_eq(note(bound, "gpushare/card-uuid"), node_cards[0].uuid);
    ck_assert_str_ne(note(pod, "gpushare/card-uuid"), node_cards[0].uuid);
    /* What it holds is not promised to anybody else. */
    node_create("whole", "whole-p");
    node_create("one", "one-q");
    ck_assert_uint_eq(look_check(), 4);
    node_remove_static("static");
    lib_wait(cluster_is_gone("static-" NODE));
    look_finish();
}
END_TEST

/* -- ids that nobody preferred -- */

static json_t *others; /* ids of another container */

static json_t *of_another_card(struct kubelet *k, json_t *right)
{
    return kubelet_pick(k, MEM, (int)json_array_size(right), right, false);
}

static json_t *of_another_container(struct kubelet *k, json_t *right)
{
    (void)k;
    (void)right;
    return json_incref(others);
}

static void is_refused(const char *pod, const char *words)
{
    cleanup_json json_t *j = NULL;
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    node_create("one", pod);
    for (;;) {
        json_decref(j);
        j = cluster_pod(pod);
        if (strcmp(lib_str(j, "status.phase"), "Failed") == 0)
            break;
        ck_assert_msg(lib_now_ms() < end, "pod %s is not refused but %s", pod,
                      lib_str(j, "status.phase"));
        lib_pause();
    }
    ck_assert_str_eq(lib_str(j, "status.reason"), "UnexpectedAdmissionError");
    ck_assert_contains(lib_str(j, "status.message"), words);
    cleanup_free char *log = node_log(pod, lib_str(j, "metadata.uid"), "c");
    ck_assert_ptr_null(log); /* it never ran */
}

START_TEST(ids_that_were_not_promised_are_refused)
{
    node_up();
    between_start();
    node_create("one", "one-a");
    ck_assert_uint_eq(look_check(), 1);
    between_meddle(of_another_card);
    is_refused("one-b", "wrong-card");
    cleanup_json json_t *held = look_held();
    others = json_object_get(held, "one-a/c");
    ck_assert_uint_eq(json_array_size(others), 4);
    between_meddle(of_another_container);
    is_refused("one-c", "held by pod default/one-a");
    between_meddle(NULL);
    node_create("one", "one-d");
    ck_assert_uint_eq(look_check(), 2); /* and the memory of those refused is back */
    ck_assert(node_metric("rejected_requests_total{reason=\"wrong-card\"}") == 1);
    lib_wait(cluster_events("reason=GPUAllocationFailed", "") >= 2);
    between_end();
    node_down();
}
END_TEST

/* -- the Go plugin -- */

enum { BEFORE = 8, AFTER = 20 };

/* <UUID>-_-<n>, those of the last card first. */
static json_t *go_ids(void)
{
    json_t *ids = json_array();
    for (int i = NODE_CARDS - 1; i >= 0; i--) {
        for (int n = 0; n < node_cards[i].units; n++) {
            cleanup_free char *id = xasprintf("%s-_-%d", node_cards[i].uuid, n);
            json_array_append_new(ids, json_string(id));
        }
    }
    return ids;
}

static json_t *first_of(const json_t *from, const json_t *among, int n)
{
    json_t *ids = json_array(), *id, *other;
    size_t i, k;
    json_array_foreach(from, i, id)
    {
        json_array_foreach(among, k, other)
        {
            if (json_equal(id, other) && (int)json_array_size(ids) < n)
                json_array_append(ids, id);
        }
    }
    return ids;
}

/* What the Go plugin does for a pod that it takes for this one. */
static void allocate_as_go(struct standin_call *c, const char *pod)
{
    cleanup_json json_t *j = cluster_pod(pod);
    cleanup_json json_t *env = json_pack(
        "{s:s,s:s,s:s}", "NVIDIA_VISIBLE_DEVICES", note(j, "ALIYUN_COM_GPU_MEM_IDX"),
        "ALIYUN_COM_GPU_MEM_IDX", note(j, "ALIYUN_COM_GPU_MEM_IDX"),
        "ALIYUN_COM_GPU_MEM_POD", note(j, "ALIYUN_COM_GPU_MEM_POD"));
    cleanup_free char *path = xasprintf(CLUSTER_PODS "/%s", pod);
    json_decref(peer_json(&cluster.api, "PATCH", path,
                          "{\"metadata\":{\"annotations\":{"
                          "\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}}}"));
    standin_allocate(c, env);
}

static void run_as_go(const char *kind, const char *pod, const json_t *ids)
{
    struct standin_call c;
    bool given = false;
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    node_create(kind, pod);
    while (!given) {
        ck_assert_msg(lib_now_ms() < end, "the kubelet asks nothing for pod %s", pod);
        if (!standin_next(&c))
            continue;
        given = c.what == STANDIN_ALLOCATE;
        if (given) {
            allocate_as_go(&c, pod);
        } else {
            cleanup_json json_t *first = first_of(ids, c.ids, c.size);
            standin_prefer(&c, first);
        }
    }
    cluster_wait_running(pod);
}

/* The pods of before have not been touched. */
static void check_not_restarted(void)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    size_t i;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
        const json_t *status = json_array_get(lib_at(pod, "status.containerStatuses"), 0);
        ck_assert_str_eq(lib_str(pod, "status.phase"), "Running");
        ck_assert_int_eq(json_integer_value(lib_at(status, "restartCount")), 0);
    }
}

START_TEST(allocations_of_the_go_plugin_stay)
{
    cleanup_json json_t *ids = go_ids();
    node_up();
    attempt_without_policies(); /* this process writes what the Go plugin writes */
    node_stop_plugin();
    standin_start(ids);
    lib_wait(node_allocatable() == NODE_UNITS);
    for (int i = 0; i < BEFORE; i++) {
        cleanup_free char *pod = xasprintf("go-%d", i);
        run_as_go(i % 2 ? "one" : "equal", pod, ids);
    }
    standin_stop();
    if (node_is_real()) {
        cleanup_free char *file = temp_read(CHECKPOINT, "kubelet_internal_checkpoint");
        ck_assert_contains(file, "-_-");
    }
    node_kill("kubelet");
    node_start_plugin(ARGV(NULL));
    node_wait_well();
    ck_assert_uint_eq(look_check(), BEFORE);
    check_not_restarted();
    for (int i = 0; i < AFTER; i++) {
        cleanup_free char *pod = xasprintf("equal-%d", i);
        node_create("equal", pod);
    }
    ck_assert_uint_eq(look_check(), BEFORE + AFTER);
    check_not_restarted();
    lib_wait(node_metric("reconciled_pods_total") >= BEFORE + AFTER);
    ck_assert(node_metric("mismatches_total") == 0);
    ck_assert_uint_eq(cluster_events("reason=GPUMismatch", ""), 0);
    printf("measured: containers of a Go plugin: %d; beside them new ones: %d\n", BEFORE,
           AFTER);
    look_tell();
    node_down();
}
END_TEST

NODE_MAIN("node-plugins", a_static_pod_gets_a_card_of_its_own,
          ids_that_were_not_promised_are_refused, allocations_of_the_go_plugin_stay)
