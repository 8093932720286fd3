/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/daemon.h"
#include "lib/agent.h"
#include "lib/attempt.h"

/*
 * scv-agent under the real API server, with the permissions of manifests/scv-agent.yaml
 * and no others: it uses the token of the DaemonSet pod on the node.
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
static void start(void)
{
    agent_start_at(&agent, daemon_kubeconfig("scv-agent", &api), NULL,
                   ARGV("--lease-renew", "1s", "--lease-grace", "4s"));
    lib_wait(scv_has(30720));
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

TEST(it_may_write_only_for_its_own_node)
{
    attempt_wait_policies();
    set_cards("0");
    cluster_create_node("n1", GPU_NODE, CARDS(15360, 15360));
    cluster_create_node("n2", GPU_NODE, CARDS(15360, 15360));
    start();
    cluster_create(SCVS, "%s", NEW("Scv", "core.run-linux.com/v1", "n2"));
    daemon_refused(api, "POST", SCVS, NEW("Scv", "core.run-linux.com/v1", "n3"),
                   "scv-agent of node n1 may not write scvs n3");
    daemon_refused(api, "PATCH", SCVS "/n2", "{\"status\":{\"cardNumber\":1}}",
                   "scv-agent of node n1 may not write scvs n2");
    daemon_refused(api, "POST", LEASES, NEW("Lease", "coordination.k8s.io/v1", "n2"),
                   "scv-agent of node n1 may not write leases n2");
    /* It may not delete, and may not read other resources. */
    daemon_refused(api, "DELETE", SCVS "/n1", NULL, "forbidden");
    daemon_refused(api, "GET", "/api/v1/nodes", NULL, "forbidden");
    daemon_refused(api, "GET", "/api/v1/namespaces/default/pods", NULL, "forbidden");
    daemon_refused(api, "GET", "/api/v1/namespaces/kube-system/secrets", NULL,
                   "forbidden");
    /* A token that is not bound to a pod has no node name. */
    struct peer other = *api;
    other.authorization = lib_fmt("Bearer %s", cluster_token("scv-agent", NULL));
    daemon_refused(&other, "POST", SCVS, NEW("Scv", "core.run-linux.com/v1", "n3"),
                   "this token of scv-agent has no node name");
    stop();
}

CLUSTER_MAIN(120)
