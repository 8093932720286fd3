/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/daemon.h"
#include "lib/cluster.h"
#include "lib/expect.h"

/*
 * Choices of node and card beyond memory: preemption, card models, labels, and the
 * liveness of nodes.
 */

#define PODS     CLUSTER_PODS
#define SPREAD   ",\"annotations\":{\"gpushare/placement\":\"spread\"}"
#define CLASS(c) ",\"priorityClassName\":\"" c "\""

/* -- preemption -- */

static void create_classes(void)
{
    cluster_create_priority("lowest", 1, "");
    cluster_create_priority("low", 10, "");
    cluster_create_priority("urgent", 1000, "");
}

static void run_pod(const char *name, int units, const char *metadata, const char *spec)
{
    cluster_create_pod(name, units, metadata, spec);
    cluster_wait_running(name);
}

/* kube-scheduler counts 4 GiB of free memory, so for 8 it evicts the two pods of the
 * lowest priority. Each is on another card, so no card becomes free. Only the extender
 * knows the further victim. */
TEST(the_extender_adds_victims_on_one_card)
{
    create_classes();
    cluster_add_node("n1", "", CARDS(8192, 8192));
    run_pod("a", 3, SPREAD, CLASS("lowest"));
    run_pod("b", 3, SPREAD, CLASS("lowest"));
    run_pod("c", 3, SPREAD, CLASS("low"));
    run_pod("d", 3, SPREAD, CLASS("low"));
    expect_on("a", "n1", "0");
    expect_on("b", "n1", "1");
    expect_on("c", "n1", "0");
    expect_on("d", "n1", "1");
    run_pod("important", 8, "", CLASS("urgent"));
    /* One of them is on the other card, and may still be terminating. */
    lib_wait(cluster_is_gone("a") && cluster_is_gone("b"));
    ck_assert_msg(!cluster_is_gone("c") != !cluster_is_gone("d"),
                  "exactly one further pod must be evicted");
    expect_on("important", "n1", !cluster_is_gone("c") ? "1" : "0");
    cluster_agrees();
}

/* -- models -- */

#define T4       "Tesla T4"
#define V100     "Tesla V100-SXM2-16GB"
#define MODEL(m) ",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"" m "\"}"

/* A node with cards of 16 GiB of these models (ends with NULL), by its Scv. */
static void add_models(const char *name, const char *const *models)
{
    cleanup_buf struct buf list = {0};
    int n = 0, mib[8] = {0};
    for (; models[n]; mib[n++] = 16384)
        buf_printf(&list,
                   "%s{\"id\":%d,\"uuid\":\"GPU-%s-%d\",\"health\":\"Healthy\",\"model\":"
                   "\"%s\",\"totalMemory\":16384,\"freeMemory\":16384,\"clock\":%d}",
                   n ? "," : "", n, name, n, models[n],
                   strcmp(models[n], T4) ? 877 : 5001);
    cluster_create("/apis/core.run-linux.com/v1/scvs",
                   "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\","
                   "\"metadata\":{\"name\":\"%s\"},\"spec\":{\"updateInterval\":1000},"
                   "\"status\":{\"cardNumber\":%d,\"cardList\":[%s],"
                   "\"updateTime\":\"2026-11-21T09:00:00Z\"}}",
                   name, n, list.p);
    cluster_create_node(name, "", mib);
    cluster_await_node(name);
}

/* Whether the pod is on one of these nodes and cards. */
static bool is_on(const char *name, const char *node, const char *card)
{
    json_t *pod = cluster_pod(name);
    return !strcmp(lib_str(pod, "spec.nodeName"), node) &&
           !strcmp(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"), card);
}

TEST(models_on_mixed_nodes)
{
    static const char *const names[] = {"v0", "v1", "v2", "v3"};
    add_models("old", ARGV(T4, T4));
    add_models("new", ARGV(V100));
    add_models("mixed", ARGV(T4, V100));
    array_items(name, names)
        cluster_create_pod(*name, 8, MODEL(" tesla v100-sxm2-16gb "), "");
    array_items(n, names) {
        cluster_wait_running(*n);
        ck_assert(is_on(*n, "new", "0") || is_on(*n, "mixed", "1"));
    }
    cluster_create_pod("fifth", 8, MODEL(V100), "");
    cluster_wait_refused("fifth", "model " V100);
    cluster_create_pod("nowhere", 1, MODEL("Tesla P4"), "");
    cluster_wait_refused("nowhere", "model Tesla P4; the node has 2 x Tesla T4");
    cluster_create_pod("either", 8, MODEL("Tesla P4, " T4), "");
    cluster_wait_running("either");
    /* Only one node has two whole cards of a model, if any. */
    cluster_create_asking("pair", "aliyun.com/gpu-count", 2, MODEL(V100), "");
    cluster_wait_refused("pair", "2 whole cards, model " V100);
    cluster_delete(PODS "/either");
    cluster_create_asking("two", "aliyun.com/gpu-count", 2, MODEL(T4), "");
    cluster_wait_running("two");
    expect_on("two", "old", "0,1");
    cluster_agrees();
}

/* Counts the pods of this name and a number below n that have a node. */
static size_t bound_of(const char *name, int n)
{
    size_t bound = 0;
    while (n--)
        bound += cluster_bound(lib_fmt("%s%d", name, n));
    return bound;
}

/* Waits until `fit` of them are bound and the others are refused with these words. */
static void await_fit(const char *name, int n, size_t fit, const char *words)
{
    lib_wait(bound_of(name, n) >= fit);
    for (int i = 0; i < n; i++) {
        const char *pod = lib_fmt("%s%d", name, i);
        if (!cluster_bound(pod))
            cluster_wait_refused(pod, words);
    }
    ck_assert_uint_eq(bound_of(name, n), fit);
}

/* Uncomments the lines of policy/kube-scheduler-config.yaml. */
static void manage_nvidia_gpu(void)
{
    temp_write(cluster.dir, "scheduler-nvidia.yaml",
               lib_swap(lib_swap(cluster_file("scheduler.yaml"),
                                 "#- name: nvidia.com/gpu", "- name: nvidia.com/gpu"),
                        "#  ignoredByScheduler: false", "  ignoredByScheduler: false"));
    cluster_start_with("kube-scheduler", ARGV("--config", "scheduler-nvidia.yaml"));
}

/* NVIDIA's device plugin also offers the two cards of the node. */
static void offer_as_nvidia(const char *node)
{
    static const char two[] = "{\"nvidia.com/gpu\":\"2\"}";
    peer_do(&cluster.api, "PATCH", lib_fmt("/api/v1/nodes/%s/status", node),
            lib_fmt("{\"status\":{\"capacity\":%s,\"allocatable\":%s}}", two, two));
}

/* kwok is no kubelet, so only the bind shows the cards of these pods. */
TEST(pods_of_nvidias_plugin_that_name_a_model)
{
    add_models("old", ARGV(T4, T4));
    add_models("new", ARGV(V100, V100));
    offer_as_nvidia("old");
    offer_as_nvidia("new");
    manage_nvidia_gpu();
    cluster_create_asking("plain", "nvidia.com/gpu", 1, "", ON("old"));
    cluster_wait_running("plain");
    for (int i = 0; i < 3; i++) /* at once, for the remaining cards of this model */
        cluster_create_asking(lib_fmt("t%d", i), "nvidia.com/gpu", 1, MODEL(T4), "");
    await_fit("t", 3, 1, ""); /* kube-scheduler counts the resource of the node, too */
    cluster_create_asking("v", "nvidia.com/gpu", 1, MODEL(V100), "");
    cluster_wait_running("v");
    ck_assert(is_on("v", "new", ""));
    cluster_create_asking("w", "nvidia.com/gpu", 1, MODEL("Tesla P4"), ON("new"));
    cluster_wait_refused("w", "model Tesla P4; the node has 2 x " V100);
}

/* -- labels of Yoda-Scheduler -- */

#define YODA "yoda-scheduler"

static void create_labelled(const char *name, const char *labels)
{
    cluster_create(PODS,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":"
                   "\"%s\",\"labels\":{%s}},\"spec\":{\"schedulerName\":\"" YODA
                   "\",\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}",
                   name, labels);
}

/* Pods with labels and without limits. In a burst, Yoda-Scheduler counted the same free
 * memory for each of them. */
TEST(labels_of_yoda_under_a_second_scheduler)
{
    enum { BURST = 8, FIT = 4 };
    struct program yoda;
    add_models("old", ARGV(T4, T4));
    add_models("new", ARGV(V100));
    cluster_start_with("gpushare-extender", ARGV("--bind-any"));
    extender_wait_answers(&cluster.extender);
    cluster_kubectl("apply", "-f", "policy/" YODA "-rbac.yaml");
    cluster_scheduler(&yoda, "policy/kube-scheduler-config-yoda.yaml", "scheduler");
    create_labelled("two", "\"scv/number\":\"2\",\"scv/memory\":\"4000\",\"scv/clock\":"
                           "\"5000\"");
    cluster_wait_running("two");
    expect_on("two", "old", "0,1");
    cluster_delete(PODS "/two");
    for (int i = 0; i < BURST; i++)
        create_labelled(lib_fmt("b%d", i),
                        "\"scv/memory\":\"8000\",\"scv/clock\":\"5000\"");
    await_fit("b", BURST, FIT, "needs 8000 MiB on one card");
    for (int i = 0; i < BURST; i++) {
        const char *name = lib_fmt("b%d", i);
        ck_assert(!cluster_bound(name) || is_on(name, "old", "0") ||
                  is_on(name, "old", "1"));
    }
    create_labelled("wrong", "\"scv/memory\":\"8Gi\"");
    cluster_wait_refused("wrong", "scv/memory");
    create_labelled("nothing", "\"app\":\"web\"");
    cluster_wait_running("nothing");
    ck_assert_str_eq(lib_annotation(cluster_pod("nothing"), "ALIYUN_COM_GPU_MEM_IDX"),
                     "");
    oracle_check(&cluster.api);
    program_stop(&yoda);
}

CLUSTER_MAIN(120)
