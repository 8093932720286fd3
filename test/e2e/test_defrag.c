/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "lib/cluster.h"

/*
 * `kubectl inspect gpushare defrag --apply` with the real Eviction API, Deployments,
 * PodDisruptionBudgets and kube-scheduler, as a user with the rights that the user guide
 * names.
 */

static void give_rights(void)
{
    static const char *const namespaces[] = {"kube-system",
                                             "nvidia-gpu-scheduler-node-lease"};
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/rbac-inspect.yaml")));
    cluster_create("/apis/rbac.authorization.k8s.io/v1/clusterroles",
                   "{\"metadata\":{\"name\":\"gpushare-defrag\"},\"rules\":["
                   "{\"apiGroups\":[\"\"],\"resources\":[\"pods/eviction\"],"
                   "\"verbs\":[\"create\"]},{\"apiGroups\":[\"\"],"
                   "\"resources\":[\"nodes\"],\"verbs\":[\"patch\"]}]}");
    free(cluster_kubectl(ARGV("create", "clusterrolebinding", "mover-sees",
                              "--clusterrole=gpushare-inspect", "--user=mover")));
    free(cluster_kubectl(ARGV("create", "clusterrolebinding", "mover-moves",
                              "--clusterrole=gpushare-defrag", "--user=mover")));
    for (size_t i = 0; i < ARRAY_LEN(namespaces); i++)
        free(cluster_kubectl(ARGV("-n", namespaces[i], "create", "rolebinding", "mover",
                                  "--role=gpushare-inspect", "--user=mover")));
}

static void start(struct program *p, const char *const *options)
{
    cleanup_free char *config = temp_path(cluster.dir, "mover.kubeconfig");
    lib_program(p, "kubectl-inspect-gpushare", ARGV("--kubeconfig", config), options);
}

static bool is_allowed(void)
{
    struct program p;
    start(&p, ARGV(NULL));
    bool allowed = program_wait(&p) == 0;
    program_fini(&p);
    return allowed;
}

static void create_deployment(const char *name)
{
    cluster_create(
        "/apis/apps/v1/namespaces/default/deployments",
        "{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"replicas\":1,\"selector\":"
        "{\"matchLabels\":{\"app\":\"%s\"}},\"template\":{\"metadata\":"
        "{\"labels\":{\"app\":\"%s\",\"tier\":\"web\"}},\"spec\":{"
        "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{"
        "\"limits\":{\"aliyun.com/gpu-mem\":\"12\"}}}]}}}}",
        name, name, name);
}

/* How many pods of the Deployments are bound to the node. */
static size_t web_pods_on(const char *node)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS "?labelSelector=tier%3Dweb");
    const json_t *pod;
    size_t i, n = 0;
    json_array_foreach(pods, i, pod)
    {
        const char *on =
            json_string_value(json_object_get(lib_at(pod, "spec"), "nodeName"));
        n += on && !strcmp(on, node) &&
             !json_object_get(lib_at(pod, "metadata"), "deletionTimestamp");
    }
    return n;
}

START_TEST(pods_move_and_the_pending_pod_is_bound)
{
    struct program p;
    cluster_add_user("mover", "/CN=mover");
    give_rights();
    lib_wait(is_allowed());
    cluster_add_node("n1", NULL, NULL, CARDS(16384, 16384));
    create_deployment("a");
    create_deployment("b");
    lib_wait(web_pods_on("n1") == 2);
    cluster_add_node("n2", NULL, NULL, CARDS(16384));
    cluster_add_node("n3", NULL, NULL, CARDS(16384));
    cluster_create(CLUSTER_PODS,
                   "{\"metadata\":{\"name\":\"big\"},\"spec\":{\"containers\":[{\"name\":"
                   "\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
                   "\"aliyun.com/gpu-count\":\"2\"}}}]}}");
    cluster_create("/apis/policy/v1/namespaces/default/poddisruptionbudgets",
                   "{\"metadata\":{\"name\":\"web\"},\"spec\":{\"minAvailable\":2,"
                   "\"selector\":{\"matchLabels\":{\"tier\":\"web\"}}}}");
    start(&p, ARGV("defrag", "pod", "big", "--apply"));
    ck_assert(program_wait_output(&p, "disruption budget"));
    ck_assert_contains(program_output(&p), "fits on node n1 (GPU0,GPU1) after 2 moves\n");
    ck_assert_uint_eq(web_pods_on("n1"), 2);
    cluster_delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web");
    int status = program_wait(&p);
    ck_assert_msg(status == 0, "exit status %d: %s", status, program_output(&p));
    ck_assert_contains(program_output(&p), "pod default/big is bound to node n1\n");
    program_fini(&p);
    ck_assert_uint_eq(web_pods_on("n2"), 1);
    ck_assert_uint_eq(web_pods_on("n3"), 1);
    cluster_agrees();
    free(cluster_kubectl(ARGV("delete", "deployment", "a", "b")));
}
END_TEST

CLUSTER_MAIN("defrag", 300, ARGV("--nodes", "0"), pods_move_and_the_pending_pod_is_bound)
