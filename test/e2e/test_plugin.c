/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "e2e/daemon.h"
#include "lib/attempt.h"
#include "lib/kubelet.h"

/*
 * gpushare-device-plugin under the real API server, with the permissions of
 * manifests/device-plugin.yaml and no others: it uses the token of the DaemonSet pod on
 * the node. The test acts as the kubelet.
 */

#define PODS "/api/v1/namespaces/default/pods"

static struct kubelet kubelet;

struct plugin {
    struct program program;
    struct peer api; /* the API server, as the plugin */
    char *authorization;
};

static void plugin_start(struct plugin *p, const char *node)
{
    cleanup_free char *ca = temp_path(cluster.dir, "pki/ca.crt");
    cleanup_free char *config =
        daemon_kubeconfig("gpushare-device-plugin", node, &p->authorization);
    cleanup_free char *source = xasprintf("file:%s/cards.json", lib_dir);
    cleanup_free char *dir = temp_path(lib_dir, "plugins");
    cleanup_free char *podresources = temp_path(lib_dir, "podresources.sock");
    cleanup_free char *state = temp_path(lib_dir, "state.json");
    temp_write(lib_dir, "cards.json",
               "{\"cards\":[{\"uuid\":\"GPU-0\",\"memoryTotal\":16106127360},"
               "{\"uuid\":\"GPU-1\",\"memoryTotal\":16106127360}]}");
    peer_init_tls(&p->api, cluster.api.port, ca);
    p->api.authorization = p->authorization;
    lib_program(&p->program, "gpushare-device-plugin",
                ARGV("--listen", "127.0.0.1", "--port", "0", "--node-name", node,
                     "--kubeconfig", config, "--gpu-source", source, "--plugin-dir", dir,
                     "--podresources-socket", podresources, "--state-file", state),
                ARGV(NULL));
    program_port(&p->program, "listening on ");
}

static void plugin_stop(struct plugin *p)
{
    /* The API server denied none of its requests. */
    ck_assert_msg(strstr(program_output(&p->program), "forbidden") == NULL, "%s",
                  program_output(&p->program));
    peer_fini(&p->api);
    free(p->authorization);
    program_stop(&p->program);
}

/* A pod that is bound and known to the kubelet. */
static void add_pod(const char *name, const char *node)
{
    cluster_create(
        PODS,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"namespace\":\"default\",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"1\","
        "\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"false\",\"scheduler.framework.gpushare."
        "allocation\":\"{}\",\"gpushare/card-uuid\":\"GPU-1\"}},"
        "\"spec\":{\"nodeName\":\"%s\",\"tolerations\":[{\"operator\":\"Exists\"}],"
        "\"containers\":[{\"name\":\"c\",\"image\":\"x\",\"resources\":{\"limits\":{"
        "\"aliyun.com/gpu-mem\":\"3\"}}}]}}",
        name, node);
}

static bool is_assigned(const char *name)
{
    cleanup_free char *path = xasprintf(PODS "/%s", name);
    cleanup_json json_t *pod = peer_json(&cluster.api, "GET", path, NULL);
    const char *is = json_string_value(json_object_get(
        lib_at(pod, "metadata.annotations"), "ALIYUN_COM_GPU_MEM_ASSIGNED"));
    return is && strcmp(is, "true") == 0;
}

START_TEST(a_container_gets_its_card_and_the_pod_its_annotation)
{
    struct plugin plugin;
    struct kubelet_answer a = {0}, b = {0};
    attempt_without_policies(); /* for add_pod */
    cluster_create_gpu_node("n1", "cgpu.disable.isolation");
    kubelet_start(&kubelet);
    plugin_start(&plugin, "n1");
    kubelet_wait_registered(&kubelet, -1);
    add_pod("p", "n1");
    kubelet_add(&kubelet, "p", ARGV("c"));
    lib_wait((kubelet_answer_fini(&a), kubelet_prefer(&kubelet, MEM, 3, &a),
              a.status == GRPC_OK));
    kubelet_allocate(&kubelet, MEM, a.ids, &b);
    ck_assert_msg(b.status == GRPC_OK, "%s", b.words);
    ck_assert_str_eq(lib_str(b.env, "NVIDIA_VISIBLE_DEVICES"), "GPU-1");
    ck_assert_str_eq(lib_str(b.env, "CGPU_DISABLE"), "true");
    lib_wait(is_assigned("p"));
    kubelet_answer_fini(&a);
    kubelet_answer_fini(&b);
    /* A rejection is an event of the pod. */
    kubelet_remove(&kubelet, "p");
    add_pod("q", "n1");
    kubelet_add(&kubelet, "q", ARGV("c"));
    kubelet_prefer(&kubelet, MEM, 3, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
    cleanup_json json_t *wrong = kubelet_pick(&kubelet, MEM, 3, a.ids, false);
    kubelet_allocate(&kubelet, MEM, wrong, &b);
    ck_assert_int_eq(b.status, GRPC_FAILED_PRECONDITION);
    lib_wait(
        cluster_events("", "container c of pod default/q is promised 3 of card 1 GPU-1"));
    kubelet_answer_fini(&a);
    kubelet_answer_fini(&b);
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
}
END_TEST

static void refused(const struct peer *as, const char *method, const char *path,
                    const char *body, const char *words)
{
    cleanup_buf struct buf reply = {0};
    struct httpc_request request = {
        .method = method,
        .path = path,
        .authorization = as->authorization,
        .content_type = "application/merge-patch+json",
        .body = span_of(body),
        .timeout_ms = 10000,
    };
    struct httpc_reply answer;
    struct err err;
    ck_assert_done(httpc_call(as->http, &request, 1 << 20, &answer, &err), err);
    ck_assert_msg(answer.status == 403 || answer.status == 422, "%s %s: %u %s", method,
                  path, answer.status, answer.body.p);
    ck_assert_contains(answer.body.p, words);
    httpc_reply_fini(&answer);
}

START_TEST(it_may_annotate_only_the_pods_of_its_node)
{
    struct plugin plugin;
    attempt_without_policies(); /* for add_pod */
    cluster_create_gpu_node("n1", "cgpu.disable.isolation");
    cluster_create_gpu_node("n2", "cgpu.disable.isolation");
    kubelet_start(&kubelet);
    plugin_start(&plugin, "n1");
    add_pod("own", "n1");
    add_pod("other", "n2");
    static const char notes[] =
        "{\"metadata\":{\"annotations\":{\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}}}";
    refused(&plugin.api, "PATCH", PODS "/other", notes,
            "the device plugin of node n1 may only annotate the pods of that node");
    attempt_accepted(&plugin.api, "MERGE", PODS "/own", notes);
    static const char *const others[] = {"a", "aliyun.com/gpu-count",
                                         "nvidia-gpu-scheduler/gpu.model"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        cleanup_free char *body =
            xasprintf("{\"metadata\":{\"annotations\":{\"%s\":\"1\"}}}", others[i]);
        refused(&plugin.api, "PATCH", PODS "/own", body,
                "may change only the annotations of a promise");
    }
    refused(&plugin.api, "PATCH", PODS "/own",
            "{\"metadata\":{\"labels\":{\"app\":\"x\"}}}",
            "may change only the annotations of a pod");
    refused(&plugin.api, "PATCH", PODS "/own", "{\"spec\":{\"activeDeadlineSeconds\":5}}",
            "may change only the annotations of a pod");
    refused(
        &plugin.api, "PATCH", PODS "/own",
        "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Node\","
        "\"name\":\"n1\",\"uid\":\"x\"}]}}",
        "may change only the annotations of a pod");
    /* It may not delete or create, and may not read other resources. */
    refused(&plugin.api, "DELETE", PODS "/own", "", "forbidden");
    refused(&plugin.api, "GET", "/api/v1/nodes", "", "forbidden");
    refused(&plugin.api, "GET", "/api/v1/namespaces/kube-system/secrets", "",
            "forbidden");
    refused(&plugin.api, "PATCH", "/api/v1/nodes/n1/status", "{}", "forbidden");
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
}
END_TEST

CLUSTER_MAIN("plugin", 120, ARGV("--nodes", "0"),
             a_container_gets_its_card_and_the_pod_its_annotation,
             it_may_annotate_only_the_pods_of_its_node)
