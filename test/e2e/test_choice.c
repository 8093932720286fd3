/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
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
START_TEST(the_extender_adds_victims_on_one_card)
{
    create_classes();
    cluster_add_node("n1", NULL, NULL, CARDS(8192, 8192));
    run_pod("a", 3, SPREAD, CLASS("lowest"));
    run_pod("b", 3, SPREAD, CLASS("lowest"));
    run_pod("c", 3, SPREAD, CLASS("low"));
    run_pod("d", 3, SPREAD, CLASS("low"));
    expect_on("a", "n1", "0");
    expect_on("b", "n1", "1");
    expect_on("c", "n1", "0");
    expect_on("d", "n1", "1");
    run_pod("important", 8, "", CLASS("urgent"));
    ck_assert(cluster_is_gone("a") && cluster_is_gone("b"));
    ck_assert_msg(!cluster_is_gone("c") != !cluster_is_gone("d"),
                  "exactly one further pod must be evicted");
    expect_on("important", "n1", !cluster_is_gone("c") ? "1" : "0");
    cluster_agrees();
}

/* -- models -- */

#define T4       "Tesla T4"
#define V100     "Tesla V100-SXM2-16GB"
#define MODEL(m) ",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"" m "\"}"

/* A node with cards of 16 GiB of these models (ends with NULL), by its Scv; NVIDIA's
 * device plugin also offers them. */
static void add_models(const char *name, const char *const *models)
{
    cleanup_buf struct buf list = {0};
    int n = 0;
    for (; models[n]; n++)
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
    cleanup_free char *amounts = xasprintf(
        "{\"cpu\":\"64\",\"memory\":\"256Gi\",\"pods\":\"250\",\"nvidia.com/gpu\":\"%d\","
        "\"aliyun.com/gpu-mem\":\"%d\",\"aliyun.com/gpu-count\":\"%d\"}",
        n, 16 * n, n);
    cluster_create("/api/v1/nodes",
                   "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"%s\",\"labels\":{\"kubernetes.io/hostname\":\"%s\"},"
                   "\"annotations\":{\"kwok.x-k8s.io/node\":\"fake\"}},"
                   "\"status\":{\"capacity\":%s,\"allocatable\":%s}}",
                   name, name, amounts, amounts);
    cluster_await_node(name);
}

/* A pod that requests this much of a resource. */
static void create_asking(const char *name, const char *resource, int amount,
                          const char *metadata, const char *spec)
{
    cluster_create(PODS,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":"
                   "\"%s\"%s},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":"
                   "\"i\",\"resources\":{\"limits\":{\"%s\":\"%d\"}}}]%s}}",
                   name, metadata, resource, amount, spec);
}

/* Whether the pod is on one of these nodes and cards. */
static bool is_on(const char *name, const char *node, const char *card)
{
    cleanup_json json_t *pod = cluster_pod(name);
    return !strcmp(lib_str(pod, "spec.nodeName"), node) &&
           !strcmp(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"), card);
}

START_TEST(models_on_mixed_nodes)
{
    static const char *const names[] = {"v0", "v1", "v2", "v3"};
    add_models("old", ARGV(T4, T4));
    add_models("new", ARGV(V100));
    add_models("mixed", ARGV(T4, V100));
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        cluster_create_pod(names[i], 8, MODEL(" tesla v100-sxm2-16gb "), "");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        cluster_wait_running(names[i]);
        ck_assert(is_on(names[i], "new", "0") || is_on(names[i], "mixed", "1"));
    }
    cluster_create_pod("fifth", 8, MODEL(V100), "");
    cluster_wait_refused("fifth", "model " V100);
    cluster_create_pod("nowhere", 1, MODEL("Tesla P4"), "");
    cluster_wait_refused("nowhere", "model Tesla P4; the node has 2 x Tesla T4");
    cluster_create_pod("either", 8, MODEL("Tesla P4, " T4), "");
    cluster_wait_running("either");
    /* Only one node has two whole cards of a model, if any. */
    create_asking("pair", "aliyun.com/gpu-count", 2, MODEL(V100), "");
    cluster_wait_refused("pair", "2 whole cards, model " V100);
    cluster_delete(PODS "/either");
    create_asking("two", "aliyun.com/gpu-count", 2, MODEL(T4), "");
    cluster_wait_running("two");
    expect_on("two", "old", "0,1");
    cluster_agrees();
}

/* Uncomments the lines of policy/kube-scheduler-config.yaml. */
static void manage_nvidia_gpu(void)
{
    cleanup_free char *shipped = temp_read(cluster.dir, "scheduler.yaml");
    static const char *const lines[] = {"  #- name: nvidia.com/gpu",
                                        "  #  ignoredByScheduler: false"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        char *line = strstr(shipped, lines[i]);
        ck_assert_ptr_nonnull(line);
        line = strchr(line, '#');
        memmove(line, line + 1, strlen(line));
    }
    temp_write(cluster.dir, "scheduler-nvidia.yaml", shipped);
    cluster_start_with("kube-scheduler", ARGV("--config", "scheduler-nvidia.yaml"));
}

/* kwok is no kubelet, so only the bind shows the cards of these pods. */
START_TEST(pods_of_nvidias_plugin_that_name_a_model)
{
    add_models("old", ARGV(T4, T4));
    add_models("new", ARGV(V100, V100));
    manage_nvidia_gpu();
    create_asking("plain", "nvidia.com/gpu", 1, "", ON("old"));
    cluster_wait_running("plain");
    for (int i = 0; i < 3; i++) { /* at once, for the remaining cards of this model */
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        create_asking(name, "nvidia.com/gpu", 1, MODEL(T4), "");
    }
    lib_wait(cluster_bound("t0") + cluster_bound("t1") + cluster_bound("t2") == 1);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        if (!cluster_bound(name))
            cluster_wait_refused(
                name, ""); /* kube-scheduler counts the resource of the node, too */
    }
    create_asking("v", "nvidia.com/gpu", 1, MODEL(V100), "");
    cluster_wait_running("v");
    cleanup_json json_t *pod = cluster_pod("v");
    ck_assert_str_eq(lib_str(pod, "spec.nodeName"), "new");
    ck_assert_ptr_null(
        json_object_get(lib_at(pod, "metadata.annotations"), "ALIYUN_COM_GPU_MEM_IDX"));
    create_asking("w", "nvidia.com/gpu", 1, MODEL("Tesla P4"), ON("new"));
    cluster_wait_refused("w", "model Tesla P4; the node has 2 x " V100);
}

/* -- labels of Yoda-Scheduler -- */

#define YODA "yoda-scheduler"

/* One more kube-scheduler, with the configuration of policy/. */
static void start_yoda(struct program *p)
{
    cleanup_buf struct buf out = {0}, text = {0};
    struct err err = {0};
    cleanup_free char *programs = temp_read(cluster.dir, "run/programs"),
                      *kubeconfig = temp_path(cluster.dir, "scheduler.kubeconfig"),
                      *config = temp_path(cluster.dir, "second-scheduler.yaml");
    programs[strcspn(programs, "\n")] = '\0';
    cleanup_free char *scheduler = xasprintf("%s/kube-scheduler", programs);
    bool tls = false; /* inside tlsConfig, which an extender on 127.0.0.1 does not need */
    free(cluster_kubectl(ARGV("apply", "-f", "policy/" YODA "-rbac.yaml")));
    ck_assert_done(
        file_read("policy/kube-scheduler-config-yoda.yaml", 1 << 16, &text, &err), err);
    for (struct span rest = buf_span(&text); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        tls = span_starts(line, SPAN("  tlsConfig:")) ||
              (tls && span_starts(line, SPAN("    ")));
        if (tls || span_starts(line, SPAN("  enableHTTPS:")))
            continue;
        if (span_starts(line, SPAN("- urlPrefix:")))
            buf_printf(&out, "- urlPrefix: http://127.0.0.1:%u/gpushare-scheduler\n",
                       cluster.extender.verbs.port);
        else if (!span_starts(line, SPAN("clientConnection:")) &&
                 !span_starts(line, SPAN("  kubeconfig:")))
            buf_printf(&out, "%.*s\n", SPAN_ARG(line));
    }
    buf_printf(&out, "clientConnection: {kubeconfig: %s}\n", kubeconfig);
    temp_write(cluster.dir, "second-scheduler.yaml", out.p);
    program_start(p, lib_dir,
                  ARGV(scheduler, "--config", config, "--secure-port", "0",
                       "--authentication-kubeconfig", kubeconfig,
                       "--authorization-kubeconfig", kubeconfig));
}

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
START_TEST(labels_of_yoda_under_a_second_scheduler)
{
    enum { BURST = 8, FIT = 4 };
    struct program yoda;
    add_models("old", ARGV(T4, T4));
    add_models("new", ARGV(V100));
    cluster_start_with("gpushare-extender", ARGV("--bind-any"));
    extender_wait_answers(&cluster.extender);
    start_yoda(&yoda);
    create_labelled("two", "\"scv/number\":\"2\",\"scv/memory\":\"4000\",\"scv/clock\":"
                           "\"5000\"");
    cluster_wait_running("two");
    expect_on("two", "old", "0,1");
    cluster_delete(PODS "/two");
    for (int i = 0; i < BURST; i++) {
        char name[16];
        snprintf(name, sizeof name, "b%d", i);
        create_labelled(name, "\"scv/memory\":\"8000\",\"scv/clock\":\"5000\"");
    }
    size_t bound, refused = 0;
    do {
        lib_pause();
        bound = 0;
        for (int i = 0; i < BURST; i++) {
            char name[16];
            snprintf(name, sizeof name, "b%d", i);
            bound += cluster_bound(name);
        }
    } while (bound < FIT);
    for (int i = 0; i < BURST; i++) {
        char name[16];
        snprintf(name, sizeof name, "b%d", i);
        if (cluster_bound(name)) {
            ck_assert(is_on(name, "old", "0") || is_on(name, "old", "1"));
        } else {
            cluster_wait_refused(name, "needs 8000 MiB on one card");
            refused++;
        }
    }
    ck_assert_uint_eq(refused, BURST - FIT);
    create_labelled("wrong", "\"scv/memory\":\"8Gi\"");
    cluster_wait_refused("wrong", "scv/memory");
    create_labelled("nothing", "\"app\":\"web\"");
    cluster_wait_running("nothing");
    cleanup_json json_t *pod = cluster_pod("nothing");
    ck_assert_ptr_null(
        json_object_get(lib_at(pod, "metadata.annotations"), "ALIYUN_COM_GPU_MEM_IDX"));
    oracle_check(&cluster.api);
    program_stop(&yoda);
}

static const char *const up[] = {"--nodes", "0", NULL};
CLUSTER_MAIN("choice", 120, up, the_extender_adds_victims_on_one_card,
             models_on_mixed_nodes,
             pods_of_nvidias_plugin_that_name_a_model,
             labels_of_yoda_under_a_second_scheduler)
