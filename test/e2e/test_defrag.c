/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "lib/cluster.h"

/*
 * `kubectl inspect gpushare defrag --apply` with the real kubectl, Eviction API, Deployments,
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
    const char *argv[PROGRAM_ARGS] = {
        lib_fmt("KUBECTL=%s", cluster_program("kubectl")), lib_fmt("TMPDIR=%s", lib_dir),
        lib_built("kubectl-inspect-gpushare"), "--kubeconfig",
        lib_fmt("%s/mover.kubeconfig", cluster.dir)};
    program_args(argv, 5, options);
    program_start(p, lib_dir, argv);
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
    /* Ctrl-C: the terminal sends it to kubectl, too. */
    const char *proxy =
        lib_output(0, ARGV("pgrep", "-f", lib_fmt("unix-socket=%s", lib_dir)));
    ck_assert_int_eq(kill((pid_t)strtol(proxy, NULL, 10), SIGINT), 0);
    program_signal(&p, SIGINT);
    const char *interrupted = lib_keep(program_end(&p, 1), free);
    ck_assert_contains(interrupted, "interrupted while waiting for eviction of pod ");
    ck_assert_contains(interrupted, "node n1 uncordoned\n");
    start(&p, ARGV("defrag", "pod", "big", "--apply"));
    ck_assert(program_wait_output(&p, "disruption budget"));
    cluster_delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web");
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_contains(said, "pod default/big is bound to node n1\n");
    ck_assert_uint_eq(web_pods_on("n2"), 1);
    ck_assert_uint_eq(web_pods_on("n3"), 1);
    cluster_agrees();
    cluster_kubectl("delete", "deployment", "a", "b");
}

CLUSTER_MAIN(300)
