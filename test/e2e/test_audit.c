/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/audit.h"
#include "e2e/daemon.h"
#include "e2e/gangs.h"
#include "lib/cluster.h"
#include "lib/overuse_node.h"
#include "lib/plugin.h"

/*
 * The rights of each program against its requests in the audit log of the real API server:
 * none is denied. A program that gets a new right needs a cause for it here. (With kube-sim,
 * test/integration/test_rbac and test_rights also check that no rule in manifests/ is unused;
 * test_rbac takes the rights of the extender away one by one.)
 */

#define PODS       CLUSTER_PODS
#define SCVS       "/apis/core.run-linux.com/v1/scvs"
#define LEASES     "/apis/coordination.k8s.io/v1/namespaces/"
#define HEARTBEATS LEASES "nvidia-gpu-scheduler-node-lease/leases"
#define SECRETS    "/api/v1/namespaces/kube-system/secrets"

/* The certificate Secrets, of which each has a rule with its name. */
static const char *const secrets[] = {SECRETS "/gpushare-extender-ca",
                                      SECRETS "/gpushare-extender-tls",
                                      SECRETS "/gpushare-scheduler-tls"};

/* The rights that only HTTPS with the extender's own certificates uses. */
static void use_https(void)
{
    const char *token = cluster_viewer();
    cluster_start_with("gpushare-extender", ARGV("--insecure=off"));
    array_items(secret, secrets)
        lib_wait(peer_status(&cluster.api, *secret) == 200);
    extender_connect_secret(&cluster.extender, &cluster.api, "kube-system", false);
    extender_wait_answers(&cluster.extender);
    /* A review of the token, and of what its owner may see. */
    cluster.extender.observers.authorization = token;
    lib_wait(peer_status(&cluster.extender.observers, "/metrics") == 200);
    cluster.extender.observers.authorization = NULL;
}

TEST(the_extender)
{
    cleanup_buf struct buf reply = {0};
    lib_wait(extender_leads(&cluster.extender));
    cluster_add_node("n1", "", CARDS(16384));
    cluster_create_pod("bound", 1, "", "");
    cluster_wait_running("bound");
    /* A GET of a pod that no watch has shown. */
    peer_call(&cluster.extender.verbs, "POST", "/gpushare-scheduler/bind",
              "{\"PodName\":\"nobody\",\"PodNamespace\":\"default\",\"PodUID\":\"u\","
              "\"Node\":\"n1\"}",
              &reply);
    gangs_filter_members();
    /* A card that becomes unhealthy is an Event; its return wakes kube-scheduler. */
    cluster_set_health("n1", CARDS(16384), "Unhealthy");
    cluster_create_pod("waits", 1, "", SCHEDULER("nobody"));
    lib_wait(extender_filter(&cluster.extender, 1, "n1", NULL) == NOT_NOW);
    cluster_set_health("n1", CARDS(16384), "Healthy");
    lib_wait(extender_filter(&cluster.extender, 1, "n1", NULL) == FITS);
    peer_do(&cluster.api, "DELETE", LEASES "kube-system/leases/gpushare-extender", NULL);
    use_https();
    audit_check(AUDIT_EXTENDER);
}

/* A container that overuses its card is an Event. */
TEST(publishing)
{
    static struct overuse_node node;
    struct agent agent;
    overuse_node_start(&node, true);
    cluster_create_node("n1", GPU_NODE, CARDS(15360, 15360));
    agent_start_at(
        &agent, daemon_kubeconfig("gpushare-device-plugin", NULL), NULL,
        ARGV("--lease-renew", "1s", "--lease-grace", "4s", OVERUSE_NODE_OPTIONS));
    lib_wait(peer_status(&cluster.api, SCVS "/n1") == 200);
    lib_wait(peer_status(&cluster.api, HEARTBEATS "/n1") == 200);
    lib_wait(program_wait_output(&agent.program, "container c uses 8192 MiB"));
    overuse_node_use(&node, 7);
    audit_check("gpushare-device-plugin");
    agent_stop(&agent);
    overuse_node_stop(&node);
}

/* Asks the plugin for the ids of a new pod, until it answers. */
static void allocate(struct kubelet *kubelet, const char *pod, bool right)
{
    cleanup_answer struct kubelet_answer a = {0}, b = {0};
    cluster_create_pod(pod, 3, "", "");
    cluster_wait_running(pod);
    kubelet_add(kubelet, pod, ARGV("c"));
    lib_wait((kubelet_answer_fini(&a), kubelet_prefer(kubelet, MEM, 3, &a),
              a.status == GRPC_OK));
    json_t *wrong = kubelet_pick(kubelet, MEM, 3, a.ids, false);
    kubelet_allocate(kubelet, MEM, right ? a.ids : wrong, &b);
    ck_assert_int_eq(b.status, right ? GRPC_OK : GRPC_FAILED_PRECONDITION);
}

TEST(allocating)
{
    static struct kubelet kubelet;
    struct plugin plugin;
    agent_cards("{'uuid':'GPU-n1-0','memoryTotal':16106127360},"
                "{'uuid':'GPU-n1-1','memoryTotal':16106127360}");
    cluster_create_node("n1", GPU_NODE, CARDS(15360, 15360));
    cluster_create_scv("n1", CARDS(15360, 15360));
    cluster_await_node("n1");
    kubelet_start(&kubelet);
    plugin_start_at(&plugin, daemon_kubeconfig("gpushare-device-plugin", NULL), NULL);
    kubelet_wait_registered(&kubelet, -1);
    allocate(&kubelet, "p", true);
    kubelet_remove(&kubelet, "p");
    allocate(&kubelet, "q", false);
    audit_check("gpushare-device-plugin");
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
}

CLUSTER_MAIN(120)
