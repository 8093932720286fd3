/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "e2e/audit.h"
#include "lib/cluster.h"
#include "lib/expect.h"

/*
 * Every form of request, from `kubectl apply` to a running pod: kube-scheduler
 * schedules, the extender binds, and the test compares the result with the computation
 * of expect.h.
 */

#define GIB 1024

/* The varying parts of a pod: further fields of metadata, with a leading comma, and
 * fields of spec. */
static void create(const char *name, const char *metadata, const char *spec)
{
    cluster_create(
        CLUSTER_PODS,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\"%s},"
        "\"spec\":{%s}}",
        name, metadata, spec);
}

#define CONTAINER(name, resource, amount)                                                \
    "{\"name\":\"" name "\",\"image\":\"i\",\"resources\":{\"limits\":{\"" resource      \
    "\":\"" amount "\"}}}"
#define MEM(name, units)  CONTAINER(name, "aliyun.com/gpu-mem", units)
#define CARDS_OF(name, n) CONTAINER(name, "aliyun.com/gpu-count", n)
#define RUN(c)            "\"containers\":[" c "]"
#define RUN2(a, b)        "\"containers\":[" a "," b "]"
#define INIT(c)           "\"initContainers\":[" c "],"
#define LABEL(key, value) ",\"labels\":{\"" key "\":\"" value "\"}"
#define NOTE(key, value)  ",\"annotations\":{\"" key "\":\"" value "\"}"
#define COUNT             "aliyun.com/gpu-count"

/* Creates the pod and checks that it gets the expected cards. */
static void placed(const char *name, const char *metadata, const char *spec)
{
    int64_t begun = clock_wall_ns();
    create(name, metadata, spec);
    expect_placed(name, begun);
}

/* Creates the pod and checks that kube-scheduler reports this reason. */
static void refused(const char *name, const char *metadata, const char *spec,
                    const char *why)
{
    create(name, metadata, spec);
    cluster_wait_refused(name, why);
}

/* When idle, the ledger equals the annotations; also after the deletion of the pods. */
static void settle(void)
{
    cluster_agrees();
    cluster_delete_pods();
    cluster_agrees();
    ck_assert_uint_eq(json_object_size(oracle_promised(&cluster.api, NULL)), 0);
}

/* -- the common example -- */

/* The name of the only pod of this app; waits for the pod. Kept. */
static const char *pod_of(const char *app)
{
    const json_t *pods;
    const char *path = lib_fmt(CLUSTER_PODS "?labelSelector=app%%3D%s", app);
    lib_wait(json_array_size(pods = cluster_list(path)) > 0);
    ck_assert_uint_eq(json_array_size(pods), 1);
    return lib_str(pods, "0.metadata.name");
}

/* Two nodes as in the published description of the example: four cards of 22 GiB, seven
 * of 11. */
TEST(binpack_1_as_it_was_published)
{
    cluster_add_node("10.0.20.250", "", CARDS(22919, 22919, 22919, 22919));
    cluster_add_node("10.0.33.21", "",
                     CARDS(11441, 11441, 11441, 11441, 11441, 11441, 11441));
    int64_t begun = clock_wall_ns();
    cluster_kubectl("apply", "-f", "manifests/samples/binpack-1.yaml");
    expect_placed(pod_of("binpack-1"), begun);
    json_int_t total = 0, used = 0;
    json_t *node;
    lib_each(node, lib_at(peer_get(&cluster.extender.observers, "/inspect"), "nodes")) {
        total += lib_int(node, "totalGPU");
        used += lib_int(node, "usedGPU");
    }
    ck_assert_int_eq(total, 165);
    ck_assert_int_eq(used, 1);
    cluster_kubectl("rollout", "status", "deployment/binpack-1", "--timeout=30s");
    settle();
}

TEST(every_sample_runs)
{
    static const char *const nodes[] = {"n1", "n2", "n3", "n4", "n5"};
    /* One node for each pod: one of them needs a whole node. */
    array_items(node, nodes)
        cluster_add_node(*node, "", CARDS(16 * GIB, 16 * GIB));
    cluster_kubectl("apply", "-f", "manifests/samples/");
    static const char *const pods[] = {"gpu-mem", "gpu-mem-several-cards", "gpu-count",
                                       "spread"};
    array_items(pod, pods)
        cluster_wait_running(*pod);
    cluster_wait_running(pod_of("binpack-1"));
    settle();
}

/* -- forms -- */

TEST(memory_over_several_cards_is_split_evenly)
{
    cluster_add_node("n1", "", CARDS(16 * GIB, 16 * GIB, 16 * GIB));
    placed("small", "", RUN(MEM("c", "8")));
    placed("labelled", LABEL(COUNT, "2"), RUN(MEM("c", "18")));
    expect_on("labelled", "n1", "1,2");
    placed("annotated", NOTE(COUNT, "3"), RUN2(MEM("a", "3"), MEM("b", "6")));
    expect_on("annotated", "n1", "0,1,2");
    refused("uneven", LABEL(COUNT, "2"), RUN(MEM("c", "5")),
            "5 units of aliyun.com/gpu-mem cannot be split evenly over 2 cards");
    refused("many", LABEL(COUNT, "4"), RUN(MEM("c", "4")), "4 cards");
    settle();
}

TEST(whole_cards_are_not_shared)
{
    cluster_add_node("n1", "", CARDS(16 * GIB, 16276, 16 * GIB, 16 * GIB));
    placed("shared", "", RUN(MEM("c", "1")));
    expect_on("shared", "n1", "1");
    placed("two", "", RUN2(CARDS_OF("a", "1"), CARDS_OF("b", "1")));
    expect_on("two", "n1", "0,2");
    placed("one", "", RUN(CARDS_OF("c", "1")));
    expect_on("one", "n1", "3");
    refused("another", "", RUN(CARDS_OF("c", "1")), "whole card");
    placed("beside", "", RUN(MEM("c", "14")));
    expect_on("beside", "n1", "1");
    settle();
}

/* -- invalid requests and excluded cards -- */

TEST(invalid_requests_are_rejected_with_a_reason)
{
    cluster_add_node("n1", "", CARDS(16 * GIB, 16 * GIB));
    refused("both", "", RUN2(MEM("a", "1"), CARDS_OF("b", "1")),
            "aliyun.com/gpu-mem and aliyun.com/gpu-count");
    refused("init", LABEL(COUNT, "2"), INIT(MEM("i", "2")) RUN(MEM("a", "2")),
            "init container");
    refused("count", LABEL(COUNT, "two"), RUN(MEM("c", "2")), "two");
    refused("policy", NOTE("gpushare/placement", "tight"), RUN(MEM("c", "2")), "tight");
    settle();
}

/* Does the extender know that the first card is excluded? */
static bool is_excluded(const char *node)
{
    return strcmp(lib_str(extender_node(&cluster.extender, node), "devs.0.health"),
                  "Excluded") == 0;
}

TEST(a_card_excluded_by_a_configmap_is_not_used)
{
    cluster_create(
        "/api/v1/namespaces/kube-system/configmaps",
        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":"
        "\"unhealthy-gpu-n1\",\"labels\":{\"test\":\"\"}},\"data\":{\"gpus\":\"0\"}}");
    cluster_add_node("n1", "", CARDS(8 * GIB, 16 * GIB));
    lib_wait(is_excluded("n1"));
    refused("two", LABEL(COUNT, "2"), RUN(MEM("c", "2")), "GPU0");
    create("one", "", RUN(MEM("c", "2")));
    cluster_wait_running("one");
    expect_on("one", "n1", "1");
    settle();
}

/* -- slots -- */

#define MEMORY(text) NOTE("gpushare/memory", text)
#define SLOTS(n)     RUN(CONTAINER("c", "aliyun.com/gpu-share", n))

/* Checks what the Binding says, and what it did not say at creation. */
static void has_slots(const char *name, const char *cards, const char *units,
                      const char *record)
{
    cluster_wait_running(name);
    const json_t *pod = cluster_pod(name);
    ck_assert_str_eq(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"), cards);
    ck_assert_str_eq(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_POD"), units);
    ck_assert_str_eq(lib_annotation(pod, "gpushare/memory-unit"), "1");
    ck_assert_str_eq(lib_annotation(pod, "gpushare/card-memory"),
                     lib_fmt("%s %s", record, lib_str(pod, "metadata.uid")));
}

TEST(memory_in_mib_or_percent)
{
    cluster_add_node("n1", "", CARDS(16 * GIB, 32 * GIB, 32 * GIB));
    /* kube-scheduler counts the slots, of which the node has none yet. */
    refused("six", MEMORY("6Gi"), SLOTS("1"), "Insufficient aliyun.com/gpu-share");
    peer_do(&cluster.api, "PATCH", "/api/v1/nodes/n1/status",
            "{\"status\":{\"capacity\":{\"aliyun.com/gpu-share\":\"6\"},\"allocatable\":{"
            "\"aliyun.com/gpu-share\":\"6\"}}}");
    has_slots("six", "0", "6144", "6144");
    create("half", MEMORY("50%"), SLOTS("2"));
    has_slots("half", "1,2", "32768", "16384");
    create("quarter", MEMORY("25%"), SLOTS("1"));
    has_slots("quarter", "0", "4096", "4096");
    refused("large", MEMORY("31Gi"), SLOTS("1"), "needs 31744 MiB on one card");
    refused("three", MEMORY("1%"), SLOTS("3"), "Insufficient aliyun.com/gpu-share");
    refused("zero", MEMORY("0%"), SLOTS("1"), "no percentage from 1 to 100");
    refused("silent", "", SLOTS("1"), "without annotation gpushare/memory");
    settle();
}

/* -- permissions -- */

/* How many pods has the extender bound? */
static size_t binds(void)
{
    size_t n = 0;
    json_t *entry;
    lib_each(entry, audit_requests(AUDIT_EXTENDER))
        n += strcmp(lib_str(entry, "objectRef.subresource"), "binding") == 0;
    return n;
}

TEST(the_role_grants_every_request)
{
    cluster_add_node("n1", "", CARDS(16 * GIB));
    size_t before = binds();
    placed("one", "", RUN(MEM("c", "2")));
    lib_wait(binds() > before);
    ck_assert_uint_eq(binds(), before + 1);
    audit_check(AUDIT_EXTENDER);
    settle();
}

CLUSTER_MAIN(120)
