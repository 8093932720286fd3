/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"

/*
 * From 1.0.0, whose nodes had two DaemonSets, to this chart and back, by helm and by kubectl, in a
 * cluster: what becomes of the objects, of the pods of the DaemonSets, and of a pod with a promise.
 * (Containers that run through it: test/e2e-node.)
 */

#define SYSTEM         "kube-system"
#define FORMER         "test/data/gpushare-1.0.0.tgz"
#define SCV_AGENT      "manifests/scv-agent.yaml.example"
#define PLUGIN         "/apis/apps/v1/namespaces/" SYSTEM "/daemonsets/gpushare-device-plugin-ds"
#define PLUGIN_ACCOUNT "gpushare-device-plugin"
#define AGENT          "/apis/apps/v1/namespaces/" SYSTEM "/daemonsets/scv-agent"
/* The objects of manifests/, without images that nobody pulls. */
#define VALUES "scheduler.enabled=false,extender.replicas=1"

static char *helm(const char *verb, const char *const *more)
{
    const char *argv[PROGRAM_ARGS] = {verb, "-n", SYSTEM, "gpushare"};
    program_args(argv, 4, more);
    return cluster_tool("helm", 0, argv);
}

/* -- what must not change -- */

/* The name, the selector and the account: the rollout is that of one DaemonSet. */
static char *identity(void)
{
    const json_t *set = peer_get(&cluster.api, PLUGIN);
    return lib_fmt("%s %s %s", lib_str(set, "metadata.uid"),
                   lib_text(set, "spec.selector"),
                   lib_str(set, "spec.template.spec.serviceAccountName"));
}

static const char *command(void)
{
    return lib_str(peer_get(&cluster.api, PLUGIN),
                   "spec.template.spec.containers.0.command.0");
}

/* A pod with a promise, as the extender of 1.0 has bound it. */
static void create_promised(void)
{
    temp_write(lib_dir, "pod.yaml",
               "apiVersion: v1\nkind: Pod\nmetadata:\n  name: promised\n  annotations:\n"
               "    ALIYUN_COM_GPU_MEM_IDX: \"0\"\n    ALIYUN_COM_GPU_MEM_POD: \"2\"\n"
               "    ALIYUN_COM_GPU_MEM_ASSIGNED: \"true\"\n"
               "    gpushare/card-uuid: GPU-n1-0\nspec:\n  nodeName: n1\n  containers:\n"
               "  - {name: c, image: i, resources: {limits: {aliyun.com/gpu-mem: 2}}}\n");
    cluster_kubectl("--as", "system:serviceaccount:" SYSTEM ":gpushare-schd-extender",
                    "--as-group", "system:masters", "create", "-f", lib_path("pod.yaml"));
    cluster_wait_running("promised");
}

/* The version of its object: nothing has written it. */
static const char *promised(void)
{
    return lib_str(cluster_pod("promised"), "metadata.resourceVersion");
}

/* The pods of a component that nobody deletes; at most one on each node. */
static size_t pods_of(const char *component, const char *runs)
{
    json_t *pod, *nodes = lib_own(json_object());
    size_t n = 0;
    lib_each(pod, cluster_list(lib_fmt("/api/v1/namespaces/" SYSTEM
                                       "/pods?labelSelector=component%%3D%s",
                                       component))) {
        const char *node = lib_str(pod, "spec.nodeName");
        if (*lib_str(pod, "metadata.deletionTimestamp") || !*node)
            continue;
        ck_assert_msg(!json_object_get(nodes, node), "two pods of %s on %s", component,
                      node);
        json_object_set_new(nodes, node, json_true());
        n += !strcmp(lib_str(pod, "spec.containers.0.command.0"), runs);
    }
    return n;
}

/* Until each node runs the program; never two pods of the plugin on one. */
static void wait_rolled(const char *program)
{
    lib_wait(pods_of("gpushare-device-plugin", program) == 2);
    ck_assert_str_eq(command(), program);
}

/* -- the objects of scv-agent -- */

static const char *const of_agent[] = {
    AGENT,
    "/api/v1/namespaces/" SYSTEM "/serviceaccounts/scv-agent",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/scv-agent",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/scv-agent",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/roles/"
    "scv-agent",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/"
    "rolebindings/scv-agent",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/scv-agent",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/scv-agent",
};

static void check_agent(unsigned status)
{
    array_items(path, of_agent)
        ck_assert_msg(peer_status(&cluster.api, *path) == status, "%s: not %u", *path,
                      status);
    lib_wait(pods_of("scv-agent", "scv-agent") == (status == 200 ? 2 : 0));
}

static void add_nodes(void)
{
    cluster_create_node("n1", GPU_NODE, CARDS(16384));
    cluster_create_node("n2", GPU_NODE, CARDS(16384));
}

/* -- helm -- */

TEST(by_helm_and_back)
{
    add_nodes();
    cluster_kubectl("delete", "-f", "manifests/node.yaml"); /* 1.0 has not all of it */
    helm("install", ARGV(FORMER, "--take-ownership", "--set", VALUES));
    wait_rolled("gpushare-device-plugin");
    check_agent(200);
    create_promised();
    const char *before = identity(), *pod = promised();
    helm("upgrade", ARGV(CHART, "--reset-then-reuse-values"));
    wait_rolled("gpushare-node");
    check_agent(404);
    ck_assert_str_eq(identity(), before);
    helm("rollback", ARGV("1"));
    wait_rolled("gpushare-device-plugin");
    check_agent(200);
    ck_assert_str_eq(identity(), before);
    /* With many nodes: scv-agent stays until the rollout is complete. */
    cluster_kubectl("annotate", "-f", SCV_AGENT, "helm.sh/resource-policy=keep");
    helm("upgrade", ARGV(CHART, "--reset-then-reuse-values"));
    wait_rolled("gpushare-node");
    check_agent(200);
    /* Before a rollback these go: helm cannot create objects that exist. */
    cluster_kubectl("delete", "-f", SCV_AGENT);
    check_agent(404);
    helm("rollback", ARGV("1"));
    wait_rolled("gpushare-device-plugin");
    check_agent(200);
    helm("upgrade", ARGV(CHART, "--reset-then-reuse-values"));
    wait_rolled("gpushare-node");
    check_agent(404);
    ck_assert_str_eq(identity(), before);
    ck_assert_str_eq(promised(), pod);
}

/* -- kubectl apply -- */

/* Both versions of the plain files, which are those of the chart. */
static void apply(const char *chart)
{
    temp_write(
        lib_dir, "objects.yaml",
        cluster_tool("helm", 0,
                     ARGV("template", "gpushare", chart, "-n", SYSTEM, "--no-hooks",
                          "--kube-version", "1.35", "--set", VALUES)));
    cluster_kubectl("apply", "-f", lib_path("objects.yaml"));
}

TEST(by_plain_files_and_back)
{
    add_nodes();
    apply(FORMER);
    wait_rolled("gpushare-device-plugin");
    check_agent(200);
    create_promised();
    const char *before = identity(), *pod = promised();
    for (int i = 0; i < 2; i++) {
        apply(CHART);
        wait_rolled("gpushare-node");
        check_agent(200); /* kubectl removes nothing */
        cluster_kubectl("delete", "-f", SCV_AGENT);
        check_agent(404);
        ck_assert_str_eq(identity(), before);
        apply(FORMER);
        wait_rolled("gpushare-device-plugin");
        check_agent(200);
        ck_assert_str_eq(identity(), before);
        /* What 1.0 does not have. */
        cluster_kubectl("-n", "nvidia-gpu-scheduler-node-lease", "delete",
                        "role,rolebinding", PLUGIN_ACCOUNT);
    }
    ck_assert_str_eq(promised(), pod);
    cluster_kubectl("apply", "-f", "manifests/");
    cluster_kubectl("delete", "-f", SCV_AGENT);
}

/* -- values of 1.0 -- */

/* A mirror with the former names of the images, and nodes of its own for scv-agent. */
TEST(two_daemonsets_stay_two)
{
    static const char values[] =
        VALUES ",scvAgent.image.repository=scv-agent,"
               "devicePlugin.image.repository=gpushare-device-plugin,"
               "scvAgent.extraArgs={--lease-renew=5s}";
    add_nodes();
    helm("uninstall", ARGV("--wait", "--ignore-not-found"));
    helm("install", ARGV(FORMER, "--take-ownership", "--set", values));
    wait_rolled("gpushare-device-plugin");
    const char *before = identity(),
               *agent = lib_str(peer_get(&cluster.api, AGENT), "metadata.uid");
    helm("upgrade", ARGV(CHART, "--reset-then-reuse-values"));
    wait_rolled("gpushare-device-plugin");
    check_agent(200);
    ck_assert_str_eq(identity(), before);
    ck_assert_at(peer_get(&cluster.api, AGENT), "metadata.uid", agent);
    ck_assert_lacks(
        lib_text(peer_get(&cluster.api, "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
                                        "gpushare-device-plugin"),
                 ""),
        "scvs");
}

CLUSTER_MAIN(120)
