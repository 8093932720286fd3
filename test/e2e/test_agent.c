/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/daemon.h"
#include "lib/agent.h"
#include "lib/attempt.h"

/*
 * The publishing mode of gpushare-node under the real API server, with the permissions of
 * manifests/node.yaml or scv-agent.yaml.example and no others: it uses the token of the DaemonSet
 * pod on the node.
 */

#define SCVS "/apis/core.run-linux.com/v1/scvs"
#define SCV  SCVS "/n1"
#define LEASES                                                                           \
    "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases"
#define LEASE LEASES "/n1"

static struct agent agent;
static struct peer *api; /* the API server, as the agent */

/* Two cards of 15 GiB; so many bytes of the first are in use. */
static void set_cards(const char *used)
{
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':16106127360,"
                "'memoryReserved':0,'memoryUsed':%s},"
                "{'uuid':'GPU-1','model':'Tesla T4','memoryTotal':16106127360}",
                used);
}

static bool scv_has(json_int_t free_mib)
{
    return peer_status(&cluster.api, SCV) == 200 &&
           lib_int(peer_get(&cluster.api, SCV), "status.freeMemorySum") == free_mib;
}

/* On n1, until it has published both cards. */
static void start_as(const char *component)
{
    agent_start_at(&agent, daemon_kubeconfig(component, &api), NULL,
                   ARGV("--lease-renew", "1s", "--lease-grace", "4s"));
    lib_wait(scv_has(30720));
}

static void start(void)
{
    start_as("gpushare-device-plugin");
}

static void stop(void)
{
    daemon_was_allowed(&agent.program);
    agent_stop(&agent);
}

/* The Scv and the Lease have the Node as owner. */
static void check_owned(void)
{
    const char *uid = lib_str(peer_get(&cluster.api, "/api/v1/nodes/n1"), "metadata.uid");
    lib_wait(peer_status(&cluster.api, LEASE) == 200);
    ck_assert_at(peer_get(&cluster.api, SCV), "metadata.ownerReferences.0.uid", uid);
    ck_assert_at(peer_get(&cluster.api, LEASE), "metadata.ownerReferences.0.uid", uid);
}

TEST(a_pod_runs_on_the_cards_that_it_publishes)
{
    set_cards("0");
    cluster_create_node("n1", GPU_NODE, CARDS(15360, 15360));
    start();
    check_owned();
    lib_wait(peer_status(&agent.health, "/healthz") == 200);
    const json_t *before = peer_get(&cluster.api, SCV);
    const char *renewed = lib_str(peer_get(&cluster.api, LEASE), "spec.renewTime");
    cluster_await_node("n1"); /* the extender has read the Scv, too */
    cluster_create_pod("p", 4, "", "");
    cluster_wait_running("p");
    ck_assert_str_eq(lib_annotation(cluster_pod("p"), "gpushare/card-uuid"), "GPU-0");
    set_cards("3221225472");
    lib_wait(scv_has(30720 - 3072));
    lib_wait(strcmp(lib_str(peer_get(&cluster.api, LEASE), "spec.renewTime"), renewed));
    /* The object that the API server returned caused no further write. */
    const json_t *after = peer_get(&cluster.api, SCV);
    ck_assert_at(after, "status.driverVersion", "535.1");
    ck_assert_int_eq(lib_int(after, "metadata.generation"),
                     lib_int(before, "metadata.generation") + 1);
    stop();
}

TEST(a_removed_node_leaves_no_objects)
{
    set_cards("0");
    cluster_create_node("n1", GPU_NODE, CARDS(15360, 15360));
    start();
    lib_wait(peer_status(&cluster.api, LEASE) == 200);
    peer_do(&cluster.api, "DELETE", "/api/v1/nodes/n1", NULL);
    lib_wait(peer_status(&cluster.api, SCV) == 404);
    lib_wait(peer_status(&cluster.api, LEASE) == 404);
    ck_assert(program_wait_output(&agent.program, "cannot get Node n1"));
    /* It may have made the Scv again before it noticed. */
    lib_wait(peer_status(&cluster.api, SCV) == 404);
    stop(); /* its pod is gone, too, and the token with it */
    cluster_create_node("n1", GPU_NODE, CARDS(15360, 15360));
    start();
    check_owned();
    stop();
}

#define NEW(kind, group, name)                                                           \
    "{\"apiVersion\":\"" group "\",\"kind\":\"" kind "\",\"metadata\":{\"name\":\"" name \
    "\"}}"

/* `who`: the account in the words of its policy. */
static void check_refusals(const char *component, const char *who, const char *unbound)
{
    set_cards("0");
    cluster_create_node("n1", GPU_NODE, CARDS(15360, 15360));
    cluster_create_node("n2", GPU_NODE, CARDS(15360, 15360));
    start_as(component);
    cluster_create(SCVS, "%s", NEW("Scv", "core.run-linux.com/v1", "n2"));
    daemon_refused(api, "POST", SCVS, NEW("Scv", "core.run-linux.com/v1", "n3"),
                   lib_fmt("%s of node n1 may not write scvs n3", who));
    daemon_refused(api, "PATCH", SCVS "/n2", "{\"status\":{\"cardNumber\":1}}",
                   lib_fmt("%s of node n1 may not write scvs n2", who));
    daemon_refused(api, "POST", LEASES, NEW("Lease", "coordination.k8s.io/v1", "n2"),
                   lib_fmt("%s of node n1 may not write leases n2", who));
    /* It may not delete, and may not read other resources. */
    daemon_refused(api, "DELETE", SCVS "/n1", NULL, "forbidden");
    daemon_refused(api, "GET", "/api/v1/nodes", NULL, "forbidden");
    daemon_refused(api, "GET", "/api/v1/namespaces/kube-system/secrets", NULL,
                   "forbidden");
    /* A token that is not bound to a pod has no node name. */
    struct peer other = *api;
    other.authorization = lib_fmt("Bearer %s", cluster_token(component, NULL));
    daemon_refused(&other, "POST", SCVS, NEW("Scv", "core.run-linux.com/v1", "n3"),
                   unbound);
    stop();
}

TEST(it_may_write_only_for_its_own_node)
{
    attempt_wait_policies();
    check_refusals("gpushare-device-plugin", "gpushare-node",
                   "this token of the device plugin has no node name");
}

static bool is_limited(const struct peer *as)
{
    cleanup_buf struct buf reply = {0};
    peer_call(as, "POST", SCVS "?dryRun=All", NEW("Scv", "core.run-linux.com/v1", "n9"),
              &reply);
    return strstr(reply.p, "this token of scv-agent has no node name") != NULL;
}

/* Beside another device plugin. Its account is another one, with fewer rights. */
TEST(scv_agent_alone_has_its_own_account_and_policy)
{
    static const char file[] = "manifests/scv-agent.yaml.example";
    cluster_kubectl("apply", "-f", file);
    const struct peer *unbound = attempt_token(cluster_token("scv-agent", NULL));
    lib_wait(is_limited(unbound));
    check_refusals("scv-agent", "scv-agent", "this token of scv-agent has no node name");
    daemon_refused(api, "GET", "/api/v1/namespaces/default/pods/p", NULL, "forbidden");
    cluster_kubectl("delete", "-f", file);
}

CLUSTER_MAIN(120)
