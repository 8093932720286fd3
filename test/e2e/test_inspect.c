/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"

/*
 * kubectl-inspect-gpushare with the real API server and kubectl, as a user who has the
 * rights of manifests/rbac-inspect.yaml and no others.
 */

/* Runs kubectl as that user, with the plugin in PATH. */
static char *as_viewer(int status, const char *const *args)
{
    const char *plugin = lib_built("kubectl-inspect-gpushare");
    const char *argv[PROGRAM_ARGS] = {
        "env",
        lib_fmt("PATH=%.*s:%s", (int)(strrchr(plugin, '/') - plugin), plugin,
                getenv("PATH")),
        lib_fmt("KUBECONFIG=%s/viewer.kubeconfig", cluster.dir),
        "kubectl",
        "inspect",
        "gpushare"};
    program_args(argv, 6, args);
    return lib_output(status, argv);
}

/* The extender may not have heard yet of what has just happened. */
static bool viewer_sees(const char *const *args, const char *text)
{
    return strstr(as_viewer(-1, args), text) != NULL;
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
    const char *alone = as_viewer(0, NULL);
    ck_assert_contains(alone, "! n1: no heartbeat from scv-agent on this node for ");
    ck_assert_contains(alone, " promised (66%), 0 free");
    ck_assert_contains(
        as_viewer(0, ARGV("explain", "pod", "w")),
        "\nn1                           no heartbeat from scv-agent on this");
    lib_wait(viewer_sees(ARGV(url),
                         "; the extender receives renewals: check the node's clock"));
}

/* The page needs no other rights than the tables. */
static void serves_the_page(void)
{
    struct program p;
    lib_program(&p, "kubectl-inspect-gpushare",
                ARGV("--kubeconfig", lib_fmt("%s/viewer.kubeconfig", cluster.dir)),
                ARGV("--serve"));
    ck_assert(program_wait_output(&p, "Ctrl-C ends it.\n"));
    struct span rest = span_of(strstr(program_output(&p), "http://"));
    struct span url = span_cut(&rest, '\n');
    const char *said;
    lib_wait(strstr(said = lib_output(0, ARGV("curl", "-sS", "--noproxy", "*",
                                              lib_fmt("%.*sinspect", SPAN_ARG(url)))),
                    "needs 8192 MiB on one card"));
    ck_assert_contains(said, "\"name\":\"a\",\"namespace\":\"default\"");
    ck_assert_lacks(said, "\"error\"");
    program_stop(&p);
}

TEST(a_user_with_these_rights_alone)
{
    cluster_add_node("n1", "", CARDS(16384, 8192));
    cluster_add_user("viewer", "/CN=viewer");
    ck_assert_contains(as_viewer(1, NULL),
                       "is forbidden: User \"viewer\" cannot list resource");
    cluster_allow_inspect("viewer");
    /* RBAC follows what is written a moment later. */
    lib_wait(!viewer_sees(NULL, "is forbidden"));

    cluster_create_pod("a", 6, "", "");
    cluster_wait_running("a");
    cluster_create_pod("b", 10, "", "");
    cluster_wait_running("b");
    cluster_create_pod("w", 8, "", "");
    cluster_wait_refused("w", "needs 8192 MiB on one card");
    const char *table = as_viewer(0, ARGV("-d"));
    ck_assert_contains(table, "6/8");
    ck_assert_contains(table, "default    a");
    ck_assert_contains(as_viewer(0, ARGV("--classic", "n1")),
                       "GPU0(Allocated/Total)  GPU1(Allocated/Total)");
    const char *explained = as_viewer(0, ARGV("explain", "pod", "w"));
    ck_assert_contains(explained, "pod default/w is pending; requests 8 GiB");
    ck_assert_contains(explained, "kube-scheduler: ");

    char *url =
        lib_fmt("--extender=http://127.0.0.1:%u", cluster.extender.observers.port);
    /* The extender runs beside the cluster, so its Service has no endpoint. */
    lib_wait(viewer_sees(ARGV("--check", url),
                         "! Service gpushare-schd-extender has no ready endpoint"));
    cluster_create(
        "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
        "{\"metadata\":{\"name\":\"by-hand\",\"labels\":{"
        "\"kubernetes.io/service-name\":\"gpushare-schd-extender\"}},"
        "\"addressType\":\"IPv4\",\"endpoints\":[{\"addresses\":[\"10.0.0.1\"],"
        "\"conditions\":{\"ready\":true}}],\"ports\":[]}");
    lib_wait(viewer_sees(ARGV("--check", url),
                         "no differences; compared with the extender\n"));
    /* The rights are those for the objects alone. */
    ck_assert_contains(as_viewer(0, ARGV("--check")),
                       "no differences; not compared with the extender (see");
    ck_assert_contains(
        as_viewer(1,
                  ARGV("--check", "--extender=kube-system/gpushare-schd-extender:12345")),
        "forbidden");
    serves_the_page();
    sees_a_dead_agent(url);
}

CLUSTER_MAIN(300)
