/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"

/*
 * kubectl-inspect-gpushare with the real API server and kubectl, as a user who has the
 * rights of manifests/rbac-inspect.yaml and no others.
 */

/* Runs kubectl as that user, with the plugin in PATH; returns what it said, new. */
static char *as_viewer(int status, const char *const *args)
{
    struct program p;
    cleanup_free char *config = temp_path(cluster.dir, "viewer.kubeconfig");
    cleanup_free char *plugin = program_path("kubectl-inspect-gpushare");
    cleanup_free char *folder = xmemdup0(plugin, (size_t)(strrchr(plugin, '/') - plugin));
    cleanup_free char *path = xasprintf("PATH=%s:%s", folder, getenv("PATH"));
    cleanup_free char *kubeconfig = xasprintf("KUBECONFIG=%s", config);
    const char *argv[PROGRAM_ARGS] = {"env",     path,      kubeconfig,
                                      "kubectl", "inspect", "gpushare"};
    program_args(argv, 6, args);
    program_start(&p, lib_dir, argv);
    return program_end(&p, status);
}

static void give_rights(void)
{
    cluster_create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "{\"metadata\":{\"name\":\"viewer\"},\"roleRef\":{\"apiGroup\":"
        "\"rbac.authorization.k8s.io\",\"kind\":\"ClusterRole\",\"name\":"
        "\"gpushare-inspect\"},\"subjects\":[{\"apiGroup\":"
        "\"rbac.authorization.k8s.io\",\"kind\":\"User\",\"name\":\"viewer\"}]}");
    static const char *const namespaces[] = {"kube-system",
                                             "nvidia-gpu-scheduler-node-lease"};
    for (size_t i = 0; i < ARRAY_LEN(namespaces); i++) {
        cleanup_free char *path =
            xasprintf("/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
                      namespaces[i]);
        cluster_create(path,
                       "{\"metadata\":{\"name\":\"viewer\"},\"roleRef\":{\"apiGroup\":"
                       "\"rbac.authorization.k8s.io\",\"kind\":\"Role\",\"name\":"
                       "\"gpushare-inspect\"},\"subjects\":[{\"apiGroup\":"
                       "\"rbac.authorization.k8s.io\",\"kind\":\"User\",\"name\":"
                       "\"viewer\"}]}");
    }
}

/* RBAC follows what is written a moment later. */
static bool is_allowed(void)
{
    struct program p;
    cleanup_free char *config = temp_path(cluster.dir, "viewer.kubeconfig");
    cleanup_free char *plugin = program_path("kubectl-inspect-gpushare");
    program_start(&p, lib_dir, ARGV(plugin, "--kubeconfig", config));
    bool allowed = program_wait(&p) == 0;
    program_fini(&p);
    return allowed;
}

/* The API server's own clock says how old it is. Without an owner: one that is not there
 * would have it collected. */
static void sees_a_dead_agent(const char *url)
{
    cluster_create("/apis/coordination.k8s.io/v1/namespaces/"
                   "nvidia-gpu-scheduler-node-lease/leases",
                   "{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"holderIdentity\":\"n1\","
                   "\"leaseDurationSeconds\":40,"
                   "\"renewTime\":\"2020-01-01T00:00:00.000000Z\"}}");
    cleanup_free char *alone = as_viewer(0, ARGV(NULL));
    ck_assert_contains(alone, "! n1: no heartbeat from scv-agent on this node for ");
    ck_assert_contains(alone, " promised (66%), 0 free");
    cleanup_free char *why = as_viewer(0, ARGV("explain", "pod", "w"));
    ck_assert_contains(
        why, "\nn1                           no heartbeat from scv-agent on this");
    cleanup_free char *asked = as_viewer(0, ARGV(url));
    ck_assert_contains(asked, "; the extender receives renewals: check the node's clock");
}

/* The page needs no other rights than the tables. */
static void serves_the_page(void)
{
    struct program p, curl;
    cleanup_free char *config = temp_path(cluster.dir, "viewer.kubeconfig");
    cleanup_free char *plugin = program_path("kubectl-inspect-gpushare");
    program_start(&p, lib_dir, ARGV(plugin, "--kubeconfig", config, "--serve"));
    ck_assert(program_wait_output(&p, "Ctrl-C ends it.\n"));
    struct span rest = span_of(strstr(program_output(&p), "http://"));
    struct span url = span_cut(&rest, '\n');
    cleanup_free char *inspect = xasprintf("%.*sinspect", SPAN_ARG(url));
    program_start(&curl, lib_dir, ARGV("curl", "-sS", "--noproxy", "*", inspect));
    ck_assert_int_eq(program_wait(&curl), 0);
    ck_assert_contains(program_output(&curl), "\"name\":\"a\",\"namespace\":\"default\"");
    ck_assert_contains(program_output(&curl), "needs 8192 MiB on one card");
    ck_assert_ptr_null(strstr(program_output(&curl), "\"error\""));
    program_fini(&curl);
    program_stop(&p);
}

START_TEST(a_user_with_these_rights_alone)
{
    cluster_add_node("n1", NULL, NULL, CARDS(16384, 8192));
    cluster_add_user("viewer", "/CN=viewer");
    cleanup_free char *without = as_viewer(1, ARGV(NULL));
    ck_assert_contains(without, "is forbidden: User \"viewer\" cannot list resource");
    give_rights();
    lib_wait(is_allowed());

    cluster_create_pod("a", 6, "", "");
    cluster_wait_running("a");
    cluster_create_pod("b", 10, "", "");
    cluster_wait_running("b");
    cluster_create_pod("w", 8, "", "");
    cluster_wait_refused("w", "needs 8192 MiB on one card");
    cleanup_free char *table = as_viewer(0, ARGV("-d"));
    ck_assert_contains(table, "6/8");
    ck_assert_contains(table, "default    a");
    cleanup_free char *classic = as_viewer(0, ARGV("--classic", "n1"));
    ck_assert_contains(classic, "GPU0(Allocated/Total)  GPU1(Allocated/Total)");
    cleanup_free char *explained = as_viewer(0, ARGV("explain", "pod", "w"));
    ck_assert_contains(explained, "pod default/w is pending; requests 8 GiB");
    ck_assert_contains(explained, "kube-scheduler: ");

    cleanup_free char *url =
        xasprintf("--extender=http://127.0.0.1:%u", cluster.extender.observers.port);
    cleanup_free char *checked = as_viewer(0, ARGV("--check", url));
    ck_assert_contains(checked, "no differences; compared with the extender\n");
    /* The rights are those for the objects alone. */
    cleanup_free char *alone = as_viewer(0, ARGV("--check"));
    ck_assert_contains(alone, "no differences; not compared with the extender (see");
    cleanup_free char *proxied = as_viewer(
        1, ARGV("--check", "--extender=kube-system/gpushare-schd-extender:12345"));
    ck_assert_contains(proxied, "forbidden");
    serves_the_page();
    sees_a_dead_agent(url);
}
END_TEST

CLUSTER_MAIN("inspect", 300, ARGV("--nodes", "0"), a_user_with_these_rights_alone)
