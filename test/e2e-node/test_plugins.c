/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "kube/deviceplugin.h"
#include "lib/attempt.h"
#include "wire/grpcc.h"
#include "wire/grpcd.h"

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

enum { BEFORE = 8, AFTER = 20, REGISTER_MS = 20 * 1000 };

/* A stand-in for it, registered with the kubelet of the node. It takes each call as one for
 * `pod`, which is set before the pod is created. */
static struct {
    struct grpcd *server;
    json_t *ids; /* <UUID>-_-<n>, those of the last card first */
    const char *pod;
    atomic_bool allocated;
} go;

static void on_options(void *ctx, struct grpcd_call *call, struct span request)
{
    struct dp_options options = {.preferred_allocation = true};
    cleanup_buf struct buf out = {0};
    (void)ctx;
    (void)request;
    ck_assert_int_eq(proto_encode(&dp_options_type, &options, DP_MESSAGE_MAX, &out, NULL),
                     0);
    grpcd_reply(call, &out);
}

static void on_watch(void *ctx, struct grpcd_call *call, struct span request)
{
    size_t n = json_array_size(go.ids), i;
    cleanup_free struct dp_device *items = xcalloc(n, sizeof *items);
    cleanup_buf struct buf out = {0};
    json_t *id;
    (void)ctx;
    (void)request;
    json_array_foreach(go.ids, i, id) items[i] = (struct dp_device){
        .id = span_of(json_string_value(id)), .health = SPAN("Healthy")};
    ck_assert_int_eq(proto_encode(&dp_devices_type, &(struct dp_devices){items, n},
                                  DP_MESSAGE_MAX, &out, NULL),
                     0);
    grpcd_send(call, &out);
}

/* The stream ends with the kubelet or with us. */
static void on_watch_ended(void *ctx, struct grpcd_call *call)
{
    (void)ctx;
    grpcd_end(call, GRPC_UNAVAILABLE, "ended");
}

/* Prefers the first ids that are available. */
static void on_prefer(void *ctx, struct grpcd_call *call, struct span request)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    struct dp_preferences all;
    struct dp_ids one = {0};
    json_t *id;
    (void)ctx;
    ck_assert_int_eq(proto_decode(&dp_preferences_type, request, &a, &all, NULL), 0);
    ck_assert_uint_eq(all.n, 1);
    const struct dp_ids *available = &all.items->available;
    struct span *ids = arena_zalloc(&a, (size_t)all.items->size * sizeof *ids);
    lib_each(id, go.ids) {
        struct span text = span_of(json_string_value(id));
        for (size_t k = 0; k < available->n && one.n < (size_t)all.items->size; k++)
            if (span_eq(available->items[k], text))
                ids[one.n++] = text;
    }
    one.items = ids;
    ck_assert_int_eq(proto_encode(&dp_groups_type, &(struct dp_groups){&one, 1},
                                  DP_MESSAGE_MAX, &out, NULL),
                     0);
    grpcd_reply(call, &out);
}

static void on_allocate(void *ctx, struct grpcd_call *call, struct span request)
{
    static const char *const keys[] = {"ALIYUN_COM_GPU_MEM_IDX",
                                       "ALIYUN_COM_GPU_MEM_POD"};
    json_t *pod = cluster_pod(go.pod);
    cleanup_buf struct buf out = {0};
    const struct dp_entry envs[] = {
        {SPAN("NVIDIA_VISIBLE_DEVICES"), span_of(lib_annotation(pod, keys[0]))},
        {span_of(keys[0]), span_of(lib_annotation(pod, keys[0]))},
        {span_of(keys[1]), span_of(lib_annotation(pod, keys[1]))}};
    const struct dp_allocation one = {.envs = envs, .n_envs = ARRAY_LEN(envs)};
    (void)ctx;
    (void)request;
    peer_do(&cluster.api, "PATCH", lib_fmt(CLUSTER_PODS "/%s", go.pod),
            "{\"metadata\":{\"annotations\":{"
            "\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}}}");
    ck_assert_int_eq(proto_encode(&dp_allocations_type, &(struct dp_allocations){&one, 1},
                                  DP_MESSAGE_MAX, &out, NULL),
                     0);
    go.allocated = true;
    grpcd_reply(call, &out);
}

static const struct grpcd_method methods[] = {
    {DP_OPTIONS, on_options, NULL},
    {DP_WATCH, on_watch, on_watch_ended},
    {DP_PREFERRED, on_prefer, NULL},
    {DP_ALLOCATE, on_allocate, NULL},
    {0},
};

static void start_go(void)
{
    struct dp_register r = {.version = SPAN(DP_VERSION),
                            .endpoint = SPAN("go.sock"),
                            .resource = SPAN("aliyun.com/gpu-mem"),
                            .options = {.preferred_allocation = true}};
    cleanup_buf struct buf message = {0}, reply = {0};
    struct grpcd_config config = {.path = NODE_PLUGINS "/go.sock", .methods = methods};
    struct err err = {0};
    go.ids = lib_own(json_array());
    for (int i = NODE_CARDS - 1; i >= 0; i--)
        for (int n = 0; n < node_cards[i].units; n++)
            json_array_append_new(go.ids, json_sprintf("%s-_-%d", node_cards[i].uuid, n));
    go.server = grpcd_start(&config, &err);
    ck_assert_msg(go.server != NULL, "%s", err.msg);
    ck_assert_done(proto_encode(&dp_register_type, &r, DP_MESSAGE_MAX, &message, &err),
                   err);
    struct grpcc_request request = {.socket = NODE_PLUGINS "/" DP_KUBELET_SOCK,
                                    .method = DP_REGISTER,
                                    .message = buf_span(&message),
                                    .timeout_ms = REGISTER_MS};
    ck_assert_done(grpcc_call(&request, &reply, NULL, &err), err);
    lib_wait(node_allocatable() == NODE_UNITS);
}

static void stop_go(void)
{
    grpcd_free(go.server);
}

static void run_as_go(const char *kind, const char *pod)
{
    go.pod = pod;
    go.allocated = false;
    node_create(kind, pod);
    lib_wait(go.allocated);
    cluster_wait_running(pod);
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
        run_as_go(i % 2 ? "one" : "equal", lib_fmt("go-%d", i));
    stop_go();
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
