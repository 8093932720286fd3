/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "e2e/daemon.h"
#include "lib/cluster.h"

/*
 * scv-agent under the real API server, with the permissions of manifests/scv-agent.yaml
 * and no others: it uses the token of the DaemonSet pod on the node.
 */

#define SCVS "/apis/core.run-linux.com/v1/scvs"
#define LEASES                                                                           \
    "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases"
struct agent {
    struct program program;
    struct peer health;
    struct peer api; /* the API server, as the agent */
    char *authorization;
};

/* Two cards of 15 GiB; so many bytes of the first are in use. */
static void set_cards(const char *used)
{
    static const char form[] = "{\"driverVersion\":\"535.1\",\"cards\":["
                               "{\"uuid\":\"GPU-0\",\"model\":\"Tesla T4\","
                               "\"memoryTotal\":16106127360,\"memoryReserved\":0,"
                               "\"memoryUsed\":%s},"
                               "{\"uuid\":\"GPU-1\",\"model\":\"Tesla T4\","
                               "\"memoryTotal\":16106127360}]}";
    cleanup_free char *text = xasprintf(form, used);
    temp_write(lib_dir, "cards.json", text);
}

static void agent_start(struct agent *a, const char *node)
{
    cleanup_free char *ca = temp_path(cluster.dir, "pki/ca.crt");
    cleanup_free char *config = daemon_kubeconfig("scv-agent", node, &a->authorization);
    cleanup_free char *source = xasprintf("file:%s/cards.json", lib_dir);
    peer_init_tls(&a->api, cluster.api.port, ca);
    a->api.authorization = a->authorization;
    lib_program(&a->program, "scv-agent",
                ARGV("--listen", "127.0.0.1", "--port", "0", "--node-name", node,
                     "--kubeconfig", config, "--gpu-source", source, "--lease-renew",
                     "1s", "--lease-grace", "4s"),
                ARGV(NULL));
    peer_init(&a->health, program_port(&a->program, "listening on "));
}

static void agent_stop(struct agent *a)
{
    /* The API server denied none of its requests. */
    ck_assert_msg(strstr(program_output(&a->program), "forbidden") == NULL, "%s",
                  program_output(&a->program));
    peer_fini(&a->health);
    peer_fini(&a->api);
    free(a->authorization);
    program_stop(&a->program);
}

static json_t *scv_of(const char *node)
{
    cleanup_free char *path = xasprintf(SCVS "/%s", node);
    cleanup_buf struct buf reply = {0};
    if (peer_call(&cluster.api, "GET", path, NULL, &reply) != 200)
        return NULL;
    return json_loadb(reply.p, reply.n, 0, NULL);
}

static bool scv_has(const char *node, json_int_t free_mib)
{
    cleanup_json json_t *scv = scv_of(node);
    return scv && json_integer_value(lib_at(scv, "status.freeMemorySum")) == free_mib;
}

static char *text_at(const char *path, const char *member)
{
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", path, NULL);
    return xstrdup(lib_str(j, member));
}

static bool still_says(const char *path, const char *member, const char *text)
{
    cleanup_free char *now = text_at(path, member);
    return strcmp(now, text) == 0;
}

static bool owned_by(const char *path, const char *uid)
{
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", path, NULL);
    const json_t *owner = json_array_get(lib_at(j, "metadata.ownerReferences"), 0);
    return strcmp(lib_str(owner, "uid"), uid) == 0;
}

START_TEST(a_pod_runs_on_the_cards_that_it_publishes)
{
    struct agent agent;
    set_cards("0");
    cluster_create_gpu_node("n1", NULL);
    agent_start(&agent, "n1");
    lib_wait(scv_has("n1", 30720));
    lib_wait(peer_status(&cluster.api, LEASES "/n1") == 200);
    lib_wait(peer_status(&agent.health, "/healthz") == 200);
    cleanup_free char *uid = text_at("/api/v1/nodes/n1", "metadata.uid");
    ck_assert(owned_by(SCVS "/n1", uid));
    ck_assert(owned_by(LEASES "/n1", uid));
    cleanup_json json_t *before = scv_of("n1");
    cleanup_free char *renewed = text_at(LEASES "/n1", "spec.renewTime");
    cluster_create(
        "/api/v1/namespaces/default/pods",
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\"},"
        "\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\","
        "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"4\"}}}]}}");
    cluster_wait_running("p");
    cleanup_json json_t *pod = cluster_pod("p");
    ck_assert_str_eq(lib_annotation(pod, "gpushare/card-uuid"), "GPU-0");
    set_cards("3221225472");
    lib_wait(scv_has("n1", 30720 - 3072));
    lib_wait(!still_says(LEASES "/n1", "spec.renewTime", renewed));
    /* The object that the API server returned caused no further write. */
    cleanup_json json_t *after = scv_of("n1");
    ck_assert_str_eq(lib_str(after, "status.driverVersion"), "535.1");
    ck_assert_int_eq(json_integer_value(lib_at(after, "metadata.generation")),
                     json_integer_value(lib_at(before, "metadata.generation")) + 1);
    agent_stop(&agent);
}

/* -- manual changes -- */

enum { DELETIONS = 100 };

START_TEST(a_removed_node_leaves_no_objects)
{
    struct agent agent;
    set_cards("0");
    cluster_create_gpu_node("n1", NULL);
    agent_start(&agent, "n1");
    lib_wait(scv_has("n1", 30720));
    lib_wait(peer_status(&cluster.api, LEASES "/n1") == 200);
    json_decref(peer_json(&cluster.api, "DELETE", "/api/v1/nodes/n1", NULL));
    lib_wait(peer_status(&cluster.api, SCVS "/n1") == 404);
    lib_wait(peer_status(&cluster.api, LEASES "/n1") == 404);
    ck_assert(program_wait_output(&agent.program, "Node n1 not found"));
    ck_assert_uint_eq(peer_status(&cluster.api, SCVS "/n1"), 404);
    agent_stop(&agent); /* its pod is gone, too, and the token with it */
    cluster_create_gpu_node("n1", NULL);
    agent_start(&agent, "n1");
    lib_wait(scv_has("n1", 30720));
    lib_wait(peer_status(&cluster.api, LEASES "/n1") == 200);
    cleanup_free char *uid = text_at("/api/v1/nodes/n1", "metadata.uid");
    ck_assert(owned_by(SCVS "/n1", uid));
    agent_stop(&agent);
}

/* -- an agent that is killed -- */

/* -- permissions -- */

static void refused(const struct peer *as, const char *method, const char *path,
                    const char *body, const char *why)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(as, method, path, body, &reply);
    ck_assert_msg(status == 403 || status == 422, "%s %s: %u %s", method, path, status,
                  reply.p);
    ck_assert_contains(reply.p, why);
}

#define NEW(kind, group, name)                                                           \
    "{\"apiVersion\":\"" group "\",\"kind\":\"" kind "\",\"metadata\":{\"name\":\"" name \
    "\"}}"

START_TEST(it_may_write_only_for_its_own_node)
{
    struct agent agent;
    set_cards("0");
    cluster_create_gpu_node("n1", NULL);
    cluster_create_gpu_node("n2", NULL);
    agent_start(&agent, "n1");
    lib_wait(scv_has("n1", 30720));
    cluster_create(SCVS, "%s", NEW("Scv", "core.run-linux.com/v1", "n2"));
    refused(&agent.api, "POST", SCVS, NEW("Scv", "core.run-linux.com/v1", "n3"),
            "scv-agent of node n1 may not write scvs n3");
    refused(&agent.api, "PATCH", SCVS "/n2", "{\"status\":{\"cardNumber\":1}}",
            "scv-agent of node n1 may not write scvs n2");
    refused(&agent.api, "POST", LEASES, NEW("Lease", "coordination.k8s.io/v1", "n2"),
            "scv-agent of node n1 may not write leases n2");
    /* It may not delete, and may not read other resources. */
    refused(&agent.api, "DELETE", SCVS "/n1", NULL, "forbidden");
    refused(&agent.api, "GET", "/api/v1/nodes", NULL, "forbidden");
    refused(&agent.api, "GET", "/api/v1/namespaces/default/pods", NULL, "forbidden");
    refused(&agent.api, "GET", "/api/v1/namespaces/kube-system/secrets", NULL,
            "forbidden");
    /* A token that is not bound to a pod has no node name. */
    cleanup_free char *token =
        cluster_kubectl(ARGV("-n", "kube-system", "create", "token", "scv-agent"));
    cleanup_free char *bearer =
        xasprintf("Bearer %.*s", (int)strcspn(token, "\n"), token);
    struct peer other = agent.api;
    other.authorization = bearer;
    refused(&other, "POST", SCVS, NEW("Scv", "core.run-linux.com/v1", "n3"),
            "this token of scv-agent has no node name");
    agent_stop(&agent);
}

CLUSTER_MAIN("agent", 120, ARGV("--nodes", "0"),
             a_pod_runs_on_the_cards_that_it_publishes,
             a_removed_node_leaves_no_objects,
             it_may_write_only_for_its_own_node)
