/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "e2e/daemon.h"
#include "lib/audit.h"
#include "lib/cluster.h"
#include "lib/gangs.h"
#include "lib/kubelet.h"
#include "lib/overuse_node.h"

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

static void set_health(const char *health)
{
    cleanup_free char *body = xasprintf(
        "{\"status\":{\"cardList\":[{\"id\":0,\"uuid\":\"GPU-n1-0\",\"health\":\"%s\","
        "\"model\":\"Tesla T4\",\"totalMemory\":16384,\"freeMemory\":16384}]}}",
        health);
    json_decref(peer_json(&cluster.api, "PATCH", SCVS "/n1", body));
}

/* The certificate Secrets, of which each has a rule with its name. */
static const char *const secrets[] = {SECRETS "/gpushare-extender-ca",
                                      SECRETS "/gpushare-extender-tls",
                                      SECRETS "/gpushare-scheduler-tls"};

/* Trusts the CA of the extender's own certificates. */
static void connect_tls(void)
{
    unsigned verbs = cluster.extender.verbs.port, look = cluster.extender.observers.port;
    cleanup_free char *text = cluster_kubectl(
        ARGV("-n", "kube-system", "get", "secret", "gpushare-extender-tls", "-o",
             "go-template={{index .data \"ca.crt\" | base64decode}}"));
    temp_write(cluster.dir, "ca.crt", text);
    cleanup_free char *ca = temp_path(cluster.dir, "ca.crt");
    peer_fini(&cluster.extender.verbs);
    peer_fini(&cluster.extender.observers);
    peer_init_tls(&cluster.extender.verbs, verbs, ca);
    peer_init_tls(&cluster.extender.observers, look, ca);
}

/* The rights that only HTTPS with the extender's own certificates uses. */
static void use_https(void)
{
    cleanup_free char *token = cluster_viewer();
    cluster_start_with("gpushare-extender", ARGV("--insecure=off"));
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
        lib_wait(peer_status(&cluster.api, secrets[i]) == 200);
    connect_tls();
    extender_wait_answers(&cluster.extender);
    /* A review of the token, and of what its owner may see. */
    cluster.extender.observers.authorization = token;
    lib_wait(peer_status(&cluster.extender.observers, "/metrics") == 200);
    cluster.extender.observers.authorization = NULL;
}

START_TEST(the_extender)
{
    cleanup_buf struct buf reply = {0};
    lib_wait(extender_leads(&cluster.extender));
    cluster_add_node("n1", NULL, NULL, CARDS(16384));
    cluster_create_pod("bound", 1, "", "");
    cluster_wait_running("bound");
    /* A GET of a pod that no watch has shown. */
    peer_call(&cluster.extender.verbs, "POST", "/gpushare-scheduler/bind",
              "{\"PodName\":\"nobody\",\"PodNamespace\":\"default\",\"PodUID\":\"u\","
              "\"Node\":\"n1\"}",
              &reply);
    gangs_filter_members();
    /* A card that becomes unhealthy is an Event; its return wakes kube-scheduler. */
    set_health("Unhealthy");
    cluster_create_pod("waits", 1, "", SCHEDULER("nobody"));
    lib_wait(extender_filter(&cluster.extender, 1, "n1", NULL) == NOT_NOW);
    set_health("Healthy");
    lib_wait(extender_filter(&cluster.extender, 1, "n1", NULL) == FITS);
    json_decref(peer_json(&cluster.api, "DELETE",
                          LEASES "kube-system/leases/gpushare-extender", NULL));
    use_https();
    audit_check(AUDIT_EXTENDER);
}

#define CARD(n)                                                                          \
    "{\"uuid\":\"GPU-n1-" #n "\",\"model\":\"Tesla T4\",\"memoryTotal\":16106127360}"

/* A container that overuses its card is an Event. */
START_TEST(scv_agent)
{
    static struct overuse_node node;
    struct program agent;
    overuse_node_start(&node, true);
    cluster_create_gpu_node("n1", NULL);
    cleanup_free char *config = daemon_kubeconfig("scv-agent", "n1", NULL);
    lib_program(&agent, "scv-agent",
                ARGV("--listen", "127.0.0.1", "--port", "0", "--node-name", "n1",
                     "--kubeconfig", config, "--gpu-source", node.source, "--lease-renew",
                     "1s", "--lease-grace", "4s"),
                ARGV(OVERUSE_NODE_OPTIONS(&node)));
    lib_wait(peer_status(&cluster.api, SCVS "/n1") == 200);
    lib_wait(peer_status(&cluster.api, HEARTBEATS "/n1") == 200);
    lib_wait(program_wait_output(&agent, "container c uses 8192 MiB"));
    overuse_node_use(&node, 7);
    audit_check("scv-agent");
    program_stop(&agent);
    overuse_node_stop(&node);
}

/* Asks the plugin for the ids of a pod, until it answers. */
static void allocate(struct kubelet *kubelet, bool right)
{
    struct kubelet_answer a = {0}, b = {0};
    lib_wait((kubelet_answer_fini(&a), kubelet_prefer(kubelet, MEM, 3, &a),
              a.status == GRPC_OK));
    cleanup_json json_t *wrong = kubelet_pick(kubelet, MEM, 3, a.ids, false);
    kubelet_allocate(kubelet, MEM, right ? a.ids : wrong, &b);
    ck_assert_int_eq(b.status, right ? GRPC_OK : GRPC_FAILED_PRECONDITION);
    kubelet_answer_fini(&a);
    kubelet_answer_fini(&b);
}

START_TEST(the_device_plugin)
{
    static struct kubelet kubelet;
    struct program plugin;
    temp_write(lib_dir, "cards.json",
               "{\"driverVersion\":\"535.1\",\"cards\":[" CARD(0) "," CARD(1) "]}");
    cluster_create_gpu_node("n1", NULL);
    cluster_create_scv("n1", CARDS(15360, 15360));
    cluster_await_node("n1");
    kubelet_start(&kubelet);
    cleanup_free char *config = daemon_kubeconfig("gpushare-device-plugin", "n1", NULL);
    cleanup_free char *source = xasprintf("file:%s/cards.json", lib_dir);
    cleanup_free char *dir = temp_path(lib_dir, "plugins");
    cleanup_free char *podresources = temp_path(lib_dir, "podresources.sock");
    cleanup_free char *state = temp_path(lib_dir, "state.json");
    lib_program(&plugin, "gpushare-device-plugin",
                ARGV("--listen", "127.0.0.1", "--port", "0", "--node-name", "n1",
                     "--kubeconfig", config, "--gpu-source", source, "--plugin-dir", dir,
                     "--podresources-socket", podresources, "--state-file", state),
                ARGV(NULL));
    kubelet_wait_registered(&kubelet, -1);
    cluster_create_pod("p", 3, "", "");
    cluster_wait_running("p");
    kubelet_add(&kubelet, "p", ARGV("c"));
    allocate(&kubelet, true);
    kubelet_remove(&kubelet, "p");
    cluster_create_pod("q", 3, "", "");
    cluster_wait_running("q");
    kubelet_add(&kubelet, "q", ARGV("c"));
    allocate(&kubelet, false);
    audit_check("gpushare-device-plugin");
    program_stop(&plugin);
    kubelet_fini(&kubelet);
}

CLUSTER_MAIN("audit", 120, ARGV("--nodes", "0"), the_extender, scv_agent,
             the_device_plugin)
