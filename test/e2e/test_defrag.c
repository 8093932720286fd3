/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"

/*
 * `kubectl inspect gpushare defrag --apply` with the real Eviction API, Deployments,
 * PodDisruptionBudgets and kube-scheduler, as a user with the rights that the user guide
 * names.
 */

static void give_rights(void)
{
    cluster_allow_inspect("mover");
    cluster_create("/apis/rbac.authorization.k8s.io/v1/clusterroles",
                   "{\"metadata\":{\"name\":\"gpushare-defrag\"},\"rules\":["
                   "{\"apiGroups\":[\"\"],\"resources\":[\"pods/eviction\"],"
                   "\"verbs\":[\"create\"]},{\"apiGroups\":[\"\"],"
                   "\"resources\":[\"nodes\"],\"verbs\":[\"patch\"]}]}");
    cluster_kubectl("create", "clusterrolebinding", "mover-moves",
                    "--clusterrole=gpushare-defrag", "--user=mover");
}

static void start(struct program *p, const char *const *options)
{
    lib_program(p, "kubectl-inspect-gpushare",
                ARGV("--kubeconfig", lib_fmt("%s/mover.kubeconfig", cluster.dir)),
                options);
}

static bool is_allowed(void)
{
    struct program p;
    start(&p, NULL);
    int status = program_wait(&p);
    program_fini(&p);
    return status == 0;
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
    json_t *pod;
    size_t n = 0;
    lib_each(pod, cluster_list(CLUSTER_PODS "?labelSelector=tier%3Dweb"))
        n += !strcmp(lib_str(pod, "spec.nodeName"), node) &&
             !*lib_str(pod, "metadata.deletionTimestamp");
    return n;
}

TEST(pods_move_and_the_pending_pod_is_bound)
{
    struct program p;
    cluster_add_user("mover", "/CN=mover");
    give_rights();
    lib_wait(is_allowed());
    cluster_add_node("n1", "", CARDS(16384, 16384));
    create_deployment("a");
    create_deployment("b");
    lib_wait(web_pods_on("n1") == 2);
    cluster_add_node("n2", "", CARDS(16384));
    cluster_add_node("n3", "", CARDS(16384));
    cluster_create_asking("big", "aliyun.com/gpu-count", 2, "", "");
    cluster_create("/apis/policy/v1/namespaces/default/poddisruptionbudgets",
                   "{\"metadata\":{\"name\":\"web\"},\"spec\":{\"minAvailable\":2,"
                   "\"selector\":{\"matchLabels\":{\"tier\":\"web\"}}}}");
    start(&p, ARGV("defrag", "pod", "big", "--apply"));
    ck_assert(program_wait_output(&p, "disruption budget"));
    ck_assert_contains(program_output(&p), "fits on node n1 (GPU0,GPU1) after 2 moves\n");
    ck_assert_uint_eq(web_pods_on("n1"), 2);
    cluster_delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web");
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_contains(said, "pod default/big is bound to node n1\n");
    ck_assert_uint_eq(web_pods_on("n2"), 1);
    ck_assert_uint_eq(web_pods_on("n3"), 1);
    cluster_agrees();
    cluster_kubectl("delete", "deployment", "a", "b");
}

CLUSTER_MAIN(300)
