/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"

/*
 * helm with manifests/chart in a cluster: it installs, takes ownership of the objects of
 * `kubectl apply` and gives them back, upgrades the CRD, and keeps CRD and Lease when it
 * uninstalls. (Containers that run through all this: test/e2e-node.)
 */

#define SYSTEM "kube-system"
#define CRD    "scvs.core.run-linux.com"

static char *helm(int status, const char *verb, const char *const *more)
{
    const char *argv[PROGRAM_ARGS] = {verb, "-n", SYSTEM, "gpushare"};
    program_args(argv, 4, more);
    return cluster_tool("helm", status, argv);
}

/* What `helm install` would create with more values (--set). */
static char *dry_install(const char *set)
{
    return helm(0, "install",
                ARGV(CHART, "--dry-run=server", "--take-ownership", "--set", set));
}

static json_t *object(const char *path)
{
    return peer_get(&cluster.api, path);
}

#define APPS       "/apis/apps/v1/namespaces/" SYSTEM
#define DEPLOYMENT APPS "/deployments/gpushare-schd-extender"
#define PLUGIN     APPS "/daemonsets/gpushare-device-plugin-ds"
#define AGENT      APPS "/daemonsets/scv-agent"
#define LEASE                                                                            \
    "/apis/coordination.k8s.io/v1/namespaces/" SYSTEM "/leases/gpushare-extender"

/* UID and spec of an object. (The generation of a Deployment also counts its
 * annotations.) */
static char *state_of(const char *path)
{
    const json_t *j = object(path);
    return lib_fmt("%s %s", lib_str(j, "metadata.uid"), lib_text(j, "spec"));
}

static bool has_releases(void)
{
    return *cluster_tool("helm", 0, ARGV("list", "-n", SYSTEM, "-q")) != '\0';
}

START_TEST(plain_files_become_a_release_and_back)
{
    static const char *const paths[] = {
        DEPLOYMENT, PLUGIN, AGENT,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" CRD,
        "/api/v1/namespaces/nvidia-gpu-scheduler-node-lease"};
    const char *before[ARRAY_LEN(paths)];
    cluster_kubectl("-n", SYSTEM, "scale", "deployment", "gpushare-schd-extender",
                    "--replicas", "1");
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        before[i] = state_of(paths[i]);
    ck_assert_contains(helm(1, "install", ARGV(CHART)), "exists and cannot be imported");
    ck_assert(!has_releases());
    helm(0, "install", ARGV(CHART, "--take-ownership"));
    ck_assert(has_releases());
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        ck_assert_str_eq(state_of(paths[i]), before[i]);
    /* README.md of the chart: helm loses the release, and the plain files own the
     * objects again. */
    cluster_kubectl("-n", SYSTEM, "delete", "secret", "-l", "owner=helm,name=gpushare");
    ck_assert(!has_releases());
    cluster_kubectl("apply", "-f", "manifests/");
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        ck_assert_str_eq(state_of(paths[i]), before[i]);
}

/* Two extenders with two Leases would both bind. */
START_TEST(a_second_extender_in_another_namespace_is_refused)
{
    ck_assert_contains(cluster_tool("helm", 1,
                                    ARGV("install", "gpushare", CHART, "-n", "gpu",
                                         "--create-namespace", "--take-ownership")),
                       "an extender is installed in namespace \"kube-system\", and "
                       "two of them would promise the same memory twice");
}

/* The limits of bound pods would mean other amounts. */
START_TEST(the_unit_stays_while_a_pod_has_a_promise)
{
    cluster_kubectl("--as", "system:serviceaccount:" SYSTEM ":gpushare-schd-extender",
                    "--as-group", "system:masters", "run", "promised", "--image", "i",
                    "--annotations", "ALIYUN_COM_GPU_MEM_IDX=0");
    ck_assert_contains(
        helm(1, "install",
             ARGV(CHART, "--dry-run=server", "--take-ownership", "--set",
                  "memoryUnit=MiB")),
        "memoryUnit: pod default/promised has a promise, and --memory-unit=GiB is "
        "installed");
    dry_install("memoryUnit=GiB");
    cluster_kubectl("delete", "pod", "promised", "--force");
    dry_install("memoryUnit=MiB");
}

/* -- what the cluster is -- */

static void check_platform_with(const char *set, const char *sentence)
{
    ck_assert_contains(dry_install(set), sentence);
}

static void check_platform(const char *sentence)
{
    check_platform_with("logLevel=info", sentence);
}

/* A kube-scheduler that calls the extender through its node port keeps it. */
static void remove_node_port(void)
{
    cluster_kubectl("-n", SYSTEM, "patch", "service", "gpushare-schd-extender", "-p",
                    "{\"spec\":{\"type\":\"ClusterIP\"}}");
}

START_TEST(a_node_port_in_use_is_no_managed_control_plane)
{
    cluster_create_node("worker", "", CARDS(1024));
    check_platform("Platform: kubeadm (found out;");
    check_platform_with("platform=managed", "Platform: managed (set by");
    check_platform_with("platform=managed",
                        "delete lease gpushare-extender gpushare-scheduler\n");
    remove_node_port();
    check_platform("Platform: managed (found out;");
    check_platform_with("extender.hostNetwork=true", "Platform: kubeadm (found out;");
    cluster_delete("/api/v1/nodes/worker");
}

/* A node port that the user asked for does not turn the next upgrade into one for kubeadm. */
START_TEST(a_managed_control_plane_with_a_node_port_stays_managed)
{
    static const char port[] = "extender.service.type=NodePort";
    cluster_create(
        "/apis/apps/v1/namespaces/" SYSTEM "/deployments",
        "{\"metadata\":{\"name\":\"gpushare-scheduler\",\"annotations\":"
        "{\"meta.helm.sh/release-name\":\"gpushare\"}},\"spec\":{\"replicas\":0,"
        "\"selector\":{\"matchLabels\":{\"a\":\"b\"}},\"template\":{\"metadata\":"
        "{\"labels\":{\"a\":\"b\"}},\"spec\":{\"containers\":[{\"name\":\"c\","
        "\"image\":\"c\"}]}}}}");
    check_platform_with(port, "Platform: managed (found out;");
    check_platform_with("scheduler.enabled=true", "Platform: kubeadm (found out;");
    cluster_delete("/apis/apps/v1/namespaces/" SYSTEM "/deployments/gpushare-scheduler");
    check_platform_with(port, "Platform: kubeadm (found out;");
}

START_TEST(the_platform_is_found_out_from_the_cluster)
{
    remove_node_port();
    check_platform("Platform: kubeadm (assumed;"); /* it has no nodes */
    cluster_create_node("worker", "", CARDS(1024));
    check_platform("Platform: managed (found out;");
    cluster_create_node("plane", ",\"node-role.kubernetes.io/control-plane\":\"\"",
                        CARDS(1024));
    check_platform("Platform: kubeadm (found out;");
    cluster_delete("/api/v1/nodes/plane");
    check_platform("Platform: managed (found out;");
    cluster_create("/api/v1/namespaces/" SYSTEM "/configmaps",
                   "{\"metadata\":{\"name\":\"kubeadm-config\"}}");
    check_platform("Platform: kubeadm (found out;");
    cluster_delete("/api/v1/namespaces/" SYSTEM "/configmaps/kubeadm-config");
}

START_TEST(the_notes_name_the_next_command)
{
    static const struct {
        const char *set, *has, *never;
    } cases[] = {
        {"platform=kubeadm", "     scripts/install\n\n", "systemctl"},
        {"platform=kubeadm", "     ctr -n k8s.io images import", "k3s"},
        {"platform=k3s", "--reset-then-reuse-values --set scheduler.enabled=true\n",
         "scripts/install"},
        {"platform=k3s", "     k3s ctr -n k8s.io images import", "rke2"},
        {"platform=rke2", "Or configure that of rke2 by hand: policy/README.md",
         "rollout"},
        {"platform=managed",
         "     kubectl -n kube-system rollout status deployment gpushare-scheduler\n",
         "scripts/install"},
        {"platform=managed", "Push those of `make images` to a registry", "ctr -n"},
        {"platform=openshift",
         "     kubectl -n kube-system rollout status deployment gpushare-scheduler\n",
         "scripts/install"},
        {"platform=openshift", "Push those of `make images` to a registry", "ctr -n"},
        {"platform=managed,image.registry=r.example", "rollout status", "`make images`"},
        {"platform=managed,scheduler.enabled=false",
         "     helm upgrade gpushare CHART -n kube-system --reset-then-reuse-values "
         "--set "
         "scheduler.enabled=true\n",
         "rollout"},
        {"platform=kubeadm,extender.insecure=true", "     scripts/install --insecure\n",
         "--renew"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *notes = strstr(dry_install(cases[i].set), "\nNOTES:\n");
        ck_assert_ptr_nonnull(notes);
        ck_assert_contains(notes, cases[i].has);
        ck_assert_msg(!strstr(notes, cases[i].never), "%s: \"%s\" in: %s", cases[i].set,
                      cases[i].never, notes);
    }
}

/* k3s creates the RuntimeClass, also where no node has the runtime; its default runtime
 * shows no card. */
START_TEST(the_daemonsets_of_k3s_use_the_runtime_of_nvidia)
{
    static const char class[] = "      runtimeClassName: \"nvidia\"\n",
                      error[] = "`no runtime for \"nvidia\" is configured`",
                      absent[] = "The DaemonSets have no RuntimeClass";
    check_platform_with("platform=k3s", absent);
    cluster_create("/apis/node.k8s.io/v1/runtimeclasses",
                   "{\"metadata\":{\"name\":\"nvidia\"},\"handler\":\"nvidia\"}");
    check_platform_with("platform=k3s", class);
    check_platform_with("platform=rke2", class);
    check_platform_with("platform=k3s", error);
    check_platform_with("platform=k3s", "     grep nvidia /var/lib/rancher/k3s/agent/");
    check_platform_with("platform=rke2", "     grep nvidia /var/lib/rancher/rke2/agent/");
    check_platform_with("platform=k3s,gpuNodes.runtimeClassName=none", absent);
    static const struct {
        const char *set;
        bool finds_no_card;
    } others[] = {{"platform=kubeadm", false},
                  {"platform=k3s,gpuNodes.nvml=host", false},
                  {"platform=k3s,gpuNodes.runtimeClassName=none", true},
                  {"platform=rke2,mps.enabled=true,mps.image=mps,"
                   "devicePlugin.isolation=mps,gpuNodes.runtimeClassName=none",
                   true},
                  {"platform=k3s,scvAgent.runtimeClassName=none,"
                   "devicePlugin.runtimeClassName=none",
                   true}};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        const char *said = dry_install(others[i].set);
        ck_assert_msg(!strstr(said, "runtimeClassName:"), "%s", others[i].set);
        ck_assert_ptr_null(strstr(said, error));
        ck_assert(!!strstr(said, absent) == others[i].finds_no_card);
    }
    cluster_delete("/apis/node.k8s.io/v1/runtimeclasses/nvidia");
}

/* -- all objects -- */

/* A line for each object of the cluster: kind, name, UID. */
static char *everything(void)
{
    char *rest = cluster_kubectl("api-resources", "--verbs=list,delete", "-o", "name");
    const char *list = "pods";
    for (const char *kind; (kind = strsep(&rest, "\n"));)
        if (*kind && strncmp(kind, "events", 6) != 0 && strcmp(kind, "pods") != 0)
            list = lib_fmt("%s,%s", list, kind);
    return cluster_kubectl("get", list, "-A", "-o",
                           "jsonpath={range .items[*]}{.kind} "
                           "{.metadata.namespace}/{.metadata.name} "
                           "{.metadata.uid}{\"\\n\"}{end}");
}

/* The lines of a that are not in b. */
static const char *only_in(const char *a, const char *b)
{
    const char *out = "";
    for (char *rest = lib_fmt("%s", a), *line; (line = strsep(&rest, "\n"));)
        if (*line && !strstr(lib_fmt("\n%s", b), lib_fmt("\n%s\n", line)))
            out = lib_fmt("%s%s\n", out, line);
    return out;
}

/* The objects created since `before`, except for CRD, Scv and Lease, which must exist. */
static const char *left_over(const char *before)
{
    static const char *const kept[] = {
        "CustomResourceDefinition /" CRD " ",
        "APIService /v1.core.run-linux.com ", /* of the CRD */
        "Scv /gpu ", "Lease " SYSTEM "/gpushare-extender "};
    const char *left = only_in(everything(), before);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        const char *line = strstr(left, kept[i]);
        ck_assert_msg(line != NULL, "no %s in: %s", kept[i], left);
        left = lib_fmt("%.*s%s", (int)(line - left), left, strchr(line, '\n') + 1);
    }
    return left;
}

/* -- the life of a release -- */

/* The chart of an older release, whose CRD has no temperature. */
static char *older_chart(void)
{
    char *chart = lib_path("chart");
    lib_output(0, ARGV("cp", "-r", CHART, chart));
    lib_output(0, ARGV("sed", "-i", "/^ *temperature: /d",
                       lib_path("chart/templates/crd.yaml")));
    return chart;
}

static bool scvs_have_temperatures(void)
{
    const char *text = lib_text(
        object("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" CRD), "");
    ck_assert_contains(text, "\"utilization\"");
    return strstr(text, "\"temperature\"") != NULL;
}

static void check_unit(const char *unit)
{
    static const char first[] = "spec.template.spec.containers.0.args.0";
    char *option = lib_fmt("--memory-unit=%s", unit);
    ck_assert_str_eq(lib_str(object(DEPLOYMENT), first), option);
    ck_assert_str_eq(lib_str(object(PLUGIN), first), option);
}

static void check_strategy(const char *type, int replicas)
{
    const json_t *extender = object(DEPLOYMENT);
    ck_assert_str_eq(lib_str(extender, "spec.strategy.type"), type);
    ck_assert_int_eq(lib_int(extender, "spec.replicas"), replicas);
    ck_assert((lib_at(extender, "spec.strategy.rollingUpdate") != NULL) ==
              (strcmp(type, "Recreate") != 0));
}

/* A value that an extender would have written. */
static void hold_lease(void)
{
    cluster_kubectl("-n", SYSTEM, "patch", "lease", "gpushare-extender", "--type",
                    "merge", "-p", "{\"spec\":{\"holderIdentity\":\"me\"}}");
}

static void check_lease(void)
{
    ck_assert_str_eq(lib_str(object(LEASE), "spec.holderIdentity"), "me");
}

static void upgrade(void)
{
    int64_t begun = lib_now_ms();
    helm(0, "upgrade",
         ARGV(CHART, "--set",
              "memoryUnit=256MiB,extender.replicas=2,scvAgent.enabled=false", "--wait"));
    cluster_report("helm upgrade --wait", lib_now_ms() - begun);
    /* The upgrade of docs/install.md: earlier values stay. */
    helm(0, "upgrade", ARGV(CHART, "--reset-then-reuse-values", "--wait"));
    ck_assert(scvs_have_temperatures());
    check_unit("256MiB");
    check_strategy("RollingUpdate", 2);
    ck_assert_uint_eq(peer_status(&cluster.api, AGENT), 404);
    check_lease();
    /* The default values again: no field of the earlier strategy remains. */
    helm(0, "upgrade", ARGV(CHART, "--reset-values", "--wait"));
    check_unit("GiB");
    check_strategy("Recreate", 1);
    ck_assert_uint_eq(peer_status(&cluster.api, AGENT), 200);
    check_lease();
}

/* The component runs on the nodes with GPUs that nobody left out. */
static bool runs_on_its_nodes(const char *component)
{
    return strcmp(cluster_kubectl("-n", SYSTEM, "get", "pods", "-l",
                                  lib_fmt("component=%s", component), "--sort-by",
                                  ".spec.nodeName", "-o",
                                  "jsonpath={.items[*].spec.nodeName}"),
                  "found gpu") == 0;
}

/* This cluster's extender stops, so this is the last test of the suite. */
START_TEST(a_release_is_installed_upgraded_and_removed_without_other_changes)
{
    char *chart = older_chart();
    /* It would create its Lease again before its rights are gone. */
    cluster_stop("gpushare-extender", "TERM");
    /* Without it, the pods and ReplicaSets of these objects would go during the test. */
    cluster_kubectl("delete", "--cascade=foreground", "-f", "manifests/");
    cluster_create_node("gpu", ",\"gpushare\":\"true\"", CARDS(16384));
    cluster_create_node("plane", ",\"node-role.kubernetes.io/control-plane\":\"\"",
                        CARDS(16384));
    /* GPU Feature Discovery labels every node with GPUs; one is left to NVIDIA's plugin. */
    cluster_create_node("found", ",\"nvidia.com/gpu.present\":\"true\"", CARDS(16384));
    cluster_create_node("left", ",\"nvidia.com/gpu.present\":\"true\"", CARDS(16384));
    cluster_kubectl("label", "node", "left", "gpushare=false");
    cluster_create("/api/v1/namespaces/" SYSTEM "/configmaps",
                   "{\"metadata\":{\"name\":\"unhealthy-gpu-gpu\",\"labels\":{\"app\":"
                   "\"gpushare\"}},\"data\":{\"gpus\":\"1\"}}");
    const char *before = everything();
    int64_t begun = lib_now_ms();
    const char *notes = helm(0, "install", ARGV(chart, "--wait"));
    cluster_report("helm install --wait", lib_now_ms() - begun);
    ck_assert_contains(notes, "kubectl label node NODE gpushare=true\n");
    ck_assert_contains(notes, "https://127.0.0.1:32766/gpushare-scheduler");
    ck_assert_contains(notes, "delete lease gpushare-extender\n");
    ck_assert_contains(notes, "delete secret gpushare-extender-ca gpushare-extender-tls "
                              "gpushare-scheduler-tls");
    char *pods =
        cluster_kubectl("-n", SYSTEM, "get", "pods", "-l", "app=gpushare",
                        "--field-selector", "status.phase=Running", "-o", "name");
    ck_assert_contains(pods, "pod/scv-agent-");
    ck_assert_contains(pods, "pod/gpushare-device-plugin-ds-");
    ck_assert_contains(pods, "pod/gpushare-schd-extender-");
    /* `helm --wait` leaves one pod of a DaemonSet out. */
    lib_wait(runs_on_its_nodes("scv-agent"));
    lib_wait(runs_on_its_nodes("gpushare-device-plugin"));
    ck_assert(!scvs_have_temperatures());
    cluster_create_scv("gpu", CARDS(16384));
    hold_lease();
    upgrade();

    ck_assert_str_eq(only_in(before, everything()), "");
    ck_assert_contains(helm(0, "uninstall", ARGV("--wait")),
                       "[CustomResourceDefinition] " CRD);
    const char *left;
    lib_wait_saying(!*(left = left_over(before)), "these objects remain: %s", left);
    ck_assert_str_eq(only_in(before, everything()), "");
    check_lease();

    /* The kept objects do not prevent another installation. */
    helm(0, "install", ARGV(CHART, "--wait"));
    check_lease();
    object("/apis/core.run-linux.com/v1/scvs/gpu");
    helm(0, "uninstall", ARGV("--timeout", "60s"));
}

CLUSTER_MAIN("helm", 180, ARGV("--nodes", "0"), plain_files_become_a_release_and_back,
             a_second_extender_in_another_namespace_is_refused,
             the_unit_stays_while_a_pod_has_a_promise,
             a_managed_control_plane_with_a_node_port_stays_managed,
             a_node_port_in_use_is_no_managed_control_plane,
             the_platform_is_found_out_from_the_cluster, the_notes_name_the_next_command,
             the_daemonsets_of_k3s_use_the_runtime_of_nvidia,
             a_release_is_installed_upgraded_and_removed_without_other_changes)
