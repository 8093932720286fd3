/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/daemon.h"
#include "lib/agent.h"
#include "lib/attempt.h"
#include "lib/plugin.h"

/*
 * gpushare-device-plugin under the real API server, with the permissions of
 * manifests/node.yaml and no others: it uses the token of the DaemonSet pod on
 * the node. The test acts as the kubelet.
 */

#define PODS "/api/v1/namespaces/default/pods"

static struct kubelet kubelet;
static struct plugin plugin;
static struct peer *api; /* the API server, as the plugin */

#define OWN_LABELS GPU_NODE ",\"cgpu.disable.isolation\":\"true\""

/* On n1. */
static void start(void)
{
    attempt_without_policies(); /* for add_pod */
    cluster_create_node("n1", OWN_LABELS, CARDS(15360, 15360));
    kubelet_start(&kubelet);
    agent_cards("{'uuid':'GPU-0','memoryTotal':16106127360},"
                "{'uuid':'GPU-1','memoryTotal':16106127360}");
    plugin_start_at(&plugin, daemon_kubeconfig("gpushare-device-plugin", &api), NULL);
}

static void stop(void)
{
    daemon_was_allowed(&plugin.program);
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
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
    return strcmp(lib_annotation(cluster_pod(name), "ALIYUN_COM_GPU_MEM_ASSIGNED"),
                  "true") == 0;
}

/* Until the plugin has seen the pod. */
static void prefer(struct kubelet_answer *a)
{
    lib_wait((kubelet_answer_fini(a), kubelet_prefer(&kubelet, MEM, 3, a),
              a->status == GRPC_OK));
}

TEST(a_container_gets_its_card_and_the_pod_its_annotation)
{
    struct kubelet_answer a = {0}, b = {0};
    start();
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(peer_status(&plugin.health, "/healthz") == 200); /* it has read the Node */
    add_pod("p", "n1");
    kubelet_add(&kubelet, "p", ARGV("c"));
    prefer(&a);
    kubelet_allocate(&kubelet, MEM, a.ids, &b);
    ck_assert_msg(b.status == GRPC_OK, "%s", b.words);
    ck_assert_at(b.env, "NVIDIA_VISIBLE_DEVICES", "GPU-1");
    ck_assert_at(b.env, "CGPU_DISABLE", "true");
    lib_wait(is_assigned("p"));
    kubelet_answer_fini(&a);
    kubelet_answer_fini(&b);
    /* A rejection is an event of the pod. */
    kubelet_remove(&kubelet, "p");
    add_pod("q", "n1");
    kubelet_add(&kubelet, "q", ARGV("c"));
    prefer(&a);
    json_t *wrong = kubelet_pick(&kubelet, MEM, 3, a.ids, false);
    kubelet_allocate(&kubelet, MEM, wrong, &b);
    ck_assert_int_eq(b.status, GRPC_FAILED_PRECONDITION);
    lib_wait(
        cluster_events("", "container c of pod default/q is promised 3 of card 1 GPU-1"));
    kubelet_answer_fini(&a);
    kubelet_answer_fini(&b);
    stop();
}

TEST(it_may_annotate_only_the_pods_of_its_node)
{
    start();
    cluster_create_node("n2", OWN_LABELS, CARDS(15360, 15360));
    add_pod("own", "n1");
    add_pod("other", "n2");
    static const char notes[] =
        "{\"metadata\":{\"annotations\":{\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}}}";
    daemon_refused(
        api, "PATCH", PODS "/other", notes,
        "the device plugin of node n1 may only annotate the pods of that node");
    attempt_accepted(api, "MERGE", PODS "/own", notes);
    static const char *const others[] = {"a", "aliyun.com/gpu-count",
                                         "nvidia-gpu-scheduler/gpu.model"};
    array_items(other, others) {
        daemon_refused(api, "PATCH", PODS "/own",
                       lib_fmt("{\"metadata\":{\"annotations\":{\"%s\":\"1\"}}}", *other),
                       "may change only the annotations of a promise");
    }
    daemon_refused(api, "PATCH", PODS "/own",
                   "{\"metadata\":{\"labels\":{\"app\":\"x\"}}}",
                   "may change only the annotations of a pod");
    daemon_refused(api, "PATCH", PODS "/own", "{\"spec\":{\"activeDeadlineSeconds\":5}}",
                   "may change only the annotations of a pod");
    daemon_refused(
        api, "PATCH", PODS "/own",
        "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Node\","
        "\"name\":\"n1\",\"uid\":\"x\"}]}}",
        "may change only the annotations of a pod");
    /* It may not delete or create, and may not read other resources. */
    daemon_refused(api, "DELETE", PODS "/own", "", "forbidden");
    daemon_refused(api, "GET", "/api/v1/nodes", "", "forbidden");
    daemon_refused(api, "GET", "/api/v1/namespaces/kube-system/secrets", "", "forbidden");
    daemon_refused(api, "PATCH", "/api/v1/nodes/n1/status", "{}", "forbidden");
    stop();
}

CLUSTER_MAIN(120)
