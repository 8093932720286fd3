/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/tools.h"

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
    return tools_run("helm", status, argv);
}

static json_t *object(const char *path)
{
    return peer_json(&cluster.api, "GET", path, NULL);
}

#define APPS       "/apis/apps/v1/namespaces/" SYSTEM
#define DEPLOYMENT APPS "/deployments/gpushare-schd-extender"
#define PLUGIN     APPS "/daemonsets/gpushare-device-plugin-ds"
#define AGENT      APPS "/daemonsets/scv-agent"
#define LEASE                                                                            \
    "/apis/coordination.k8s.io/v1/namespaces/" SYSTEM "/leases/gpushare-extender"

/* UID and spec of an object. (The generation of a Deployment also counts its
 * annotations.) New. */
static char *state_of(const char *path)
{
    cleanup_json json_t *j = object(path);
    cleanup_free char *spec =
        json_dumps(json_object_get(j, "spec"), JSON_SORT_KEYS | JSON_COMPACT);
    return xasprintf("%s %s", lib_str(j, "metadata.uid"), spec);
}

static void check_state(const char *path, const char *before)
{
    cleanup_free char *now = state_of(path);
    ck_assert_msg(strcmp(now, before) == 0, "%s: %s, then %s", path, before, now);
}

static bool has_releases(void)
{
    cleanup_free char *said = tools_run("helm", 0, ARGV("list", "-n", SYSTEM, "-q"));
    return *said != '\0';
}

START_TEST(plain_files_become_a_release_and_back)
{
    static const char *const paths[] = {
        DEPLOYMENT, PLUGIN, AGENT,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" CRD,
        "/api/v1/namespaces/nvidia-gpu-scheduler-node-lease"};
    char *before[ARRAY_LEN(paths)];
    free(cluster_kubectl(ARGV("-n", SYSTEM, "scale", "deployment",
                              "gpushare-schd-extender", "--replicas", "1")));
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        before[i] = state_of(paths[i]);
    cleanup_free char *refused = helm(1, "install", ARGV(CHART));
    ck_assert_contains(refused, "exists and cannot be imported");
    ck_assert(!has_releases());
    free(helm(0, "install", ARGV(CHART, "--take-ownership")));
    ck_assert(has_releases());
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        check_state(paths[i], before[i]);
    /* README.md of the chart: helm loses the release, and the plain files own the
     * objects again. */
    free(cluster_kubectl(
        ARGV("-n", SYSTEM, "delete", "secret", "-l", "owner=helm,name=gpushare")));
    ck_assert(!has_releases());
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/")));
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        check_state(paths[i], before[i]);
        free(before[i]);
    }
}
END_TEST

/* Two extenders with two Leases would both bind. */
START_TEST(a_second_extender_in_another_namespace_is_refused)
{
    cleanup_free char *said = tools_run("helm", 1,
                                        ARGV("install", "gpushare", CHART, "-n", "gpu",
                                             "--create-namespace", "--take-ownership"));
    ck_assert_contains(said, "an extender is installed in namespace \"kube-system\", and "
                             "two of them would promise the same memory twice");
}
END_TEST

/* -- what the cluster is -- */

static void check_platform_with(const char *set, const char *sentence)
{
    cleanup_free char *said = helm(
        0, "install", ARGV(CHART, "--dry-run=server", "--take-ownership", "--set", set));
    ck_assert_contains(said, sentence);
}

static void check_platform(const char *sentence)
{
    check_platform_with("logLevel=info", sentence);
}

/* A kube-scheduler that calls the extender through its node port keeps it. */
static void remove_node_port(void)
{
    free(cluster_kubectl(ARGV("-n", SYSTEM, "patch", "service", "gpushare-schd-extender",
                              "-p", "{\"spec\":{\"type\":\"ClusterIP\"}}")));
}

START_TEST(a_node_port_in_use_is_no_managed_control_plane)
{
    cluster_create_bare_node("worker", NULL, NULL, CARDS(1024));
    check_platform("Platform: kubeadm (found out;");
    check_platform_with("platform=managed", "Platform: managed (set by");
    check_platform_with("platform=managed",
                        "delete lease gpushare-extender gpushare-scheduler\n");
    remove_node_port();
    check_platform("Platform: managed (found out;");
    check_platform_with("extender.hostNetwork=true", "Platform: kubeadm (found out;");
    cluster_delete("/api/v1/nodes/worker");
}
END_TEST

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
END_TEST

START_TEST(the_platform_is_found_out_from_the_cluster)
{
    remove_node_port();
    check_platform("Platform: kubeadm (assumed;"); /* it has no nodes */
    cluster_create_bare_node("worker", NULL, NULL, CARDS(1024));
    check_platform("Platform: managed (found out;");
    cluster_create_bare_node("plane", "node-role.kubernetes.io/control-plane", "",
                             CARDS(1024));
    check_platform("Platform: kubeadm (found out;");
    cluster_delete("/api/v1/nodes/plane");
    check_platform("Platform: managed (found out;");
    cluster_create("/api/v1/namespaces/" SYSTEM "/configmaps",
                   "{\"metadata\":{\"name\":\"kubeadm-config\"}}");
    check_platform("Platform: kubeadm (found out;");
    cluster_delete("/api/v1/namespaces/" SYSTEM "/configmaps/kubeadm-config");
}
END_TEST

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
        {"platform=rke2", "Or configure that of rke2 by hand: policy/README.md", "rollout"},
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
        cleanup_free char *said = helm(
            0, "install",
            ARGV(CHART, "--dry-run=server", "--take-ownership", "--set", cases[i].set));
        const char *notes = strstr(said, "\nNOTES:\n");
        ck_assert_ptr_nonnull(notes);
        ck_assert_contains(notes, cases[i].has);
        ck_assert_msg(!strstr(notes, cases[i].never), "%s: \"%s\" in: %s", cases[i].set,
                      cases[i].never, notes);
    }
}
END_TEST

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
        cleanup_free char *said = helm(
            0, "install",
            ARGV(CHART, "--dry-run=server", "--take-ownership", "--set", others[i].set));
        ck_assert_msg(!strstr(said, "runtimeClassName:"), "%s", others[i].set);
        ck_assert_ptr_null(strstr(said, error));
        ck_assert(!!strstr(said, absent) == others[i].finds_no_card);
    }
    cluster_delete("/apis/node.k8s.io/v1/runtimeclasses/nvidia");
}
END_TEST

/* -- all objects -- */

/* A line for each object of the cluster: kind, name, UID. New. */
static char *everything(void)
{
    cleanup_free char *kinds =
        cluster_kubectl(ARGV("api-resources", "--verbs=list,delete", "-o", "name"));
    cleanup_buf struct buf list = {0};
    for (char *rest = kinds, *kind; (kind = strsep(&rest, "\n"));)
        if (*kind && strncmp(kind, "events", 6) != 0)
            buf_printf(&list, "%s%s", list.n ? "," : "", kind);
    return cluster_kubectl(ARGV("get", list.p, "-A", "-o",
                                "jsonpath={range .items[*]}{.kind} "
                                "{.metadata.namespace}/{.metadata.name} "
                                "{.metadata.uid}{\"\\n\"}{end}"));
}

/* The lines of a that are not in b, new. */
static char *only_in(const char *a, const char *b)
{
    cleanup_buf struct buf out = {0};
    cleanup_free char *copy = xstrdup(a), *padded = xasprintf("\n%s", b);
    for (char *rest = copy, *line; (line = strsep(&rest, "\n"));) {
        cleanup_free char *whole = xasprintf("\n%s\n", line);
        if (*line && !strstr(padded, whole))
            buf_printf(&out, "%s\n", line);
    }
    return xstrdup(out.n ? out.p : "");
}

/* The objects created since `before`, except for CRD, Scv and Lease, which must exist:
 * new. */
static char *left_over(const char *before)
{
    static const char *const kept[] = {
        "CustomResourceDefinition /" CRD " ",
        "APIService /v1.core.run-linux.com ", /* of the CRD */
        "Scv /gpu ", "Lease " SYSTEM "/gpushare-extender "};
    cleanup_free char *now = everything(), *more = only_in(now, before);
    cleanup_buf struct buf out = {0};
    size_t found = 0;
    for (char *rest = more, *line; (line = strsep(&rest, "\n"));) {
        size_t i = 0;
        while (i < ARRAY_LEN(kept) && strncmp(line, kept[i], strlen(kept[i])) != 0)
            i++;
        if (i < ARRAY_LEN(kept))
            found++;
        else if (*line)
            buf_printf(&out, "%s\n", line);
    }
    ck_assert_uint_eq(found, ARRAY_LEN(kept));
    return xstrdup(out.n ? out.p : "");
}

static void wait_for_rest(const char *before)
{
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    for (;;) {
        cleanup_free char *left = left_over(before);
        if (!*left)
            return;
        ck_assert_msg(lib_now_ms() < end, "these objects remain: %s", left);
        lib_pause();
    }
}

/* -- the life of a release -- */

/* The chart of an older release, whose CRD has no temperature. */
static char *older_chart(void)
{
    struct program p;
    cleanup_free char *crd = temp_path(lib_dir, "chart/templates/crd.yaml");
    char *chart = temp_path(lib_dir, "chart");
    program_start(&p, lib_dir, ARGV("cp", "-r", CHART, chart));
    ck_assert_msg(program_wait(&p) == 0, "%s", program_output(&p));
    program_fini(&p);
    program_start(&p, lib_dir, ARGV("sed", "-i", "/^ *temperature: /d", crd));
    ck_assert_msg(program_wait(&p) == 0, "%s", program_output(&p));
    program_fini(&p);
    return chart;
}

static bool scvs_have_temperatures(void)
{
    cleanup_json json_t *crd =
        object("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" CRD);
    cleanup_free char *text = json_dumps(crd, 0);
    ck_assert_contains(text, "\"utilization\"");
    return strstr(text, "\"temperature\"") != NULL;
}

static const char *argument(const json_t *object, size_t i)
{
    const json_t *containers = lib_at(object, "spec.template.spec.containers");
    return json_string_value(
        json_array_get(json_object_get(json_array_get(containers, 0), "args"), i));
}

static void check_unit(const char *unit)
{
    cleanup_free char *option = xasprintf("--memory-unit=%s", unit);
    cleanup_json json_t *extender = object(DEPLOYMENT), *plugin = object(PLUGIN);
    ck_assert_str_eq(argument(extender, 0), option);
    ck_assert_str_eq(argument(plugin, 0), option);
}

static void check_strategy(const char *type, int replicas)
{
    cleanup_json json_t *extender = object(DEPLOYMENT);
    ck_assert_str_eq(lib_str(extender, "spec.strategy.type"), type);
    ck_assert_int_eq(json_integer_value(lib_at(extender, "spec.replicas")), replicas);
    ck_assert((lib_at(extender, "spec.strategy.rollingUpdate") != NULL) ==
              (strcmp(type, "Recreate") != 0));
}

/* A value that an extender would have written. */
static void hold_lease(void)
{
    free(cluster_kubectl(ARGV("-n", SYSTEM, "patch", "lease", "gpushare-extender",
                              "--type", "merge", "-p",
                              "{\"spec\":{\"holderIdentity\":\"me\"}}")));
}

static void check_lease(void)
{
    cleanup_json json_t *lease = object(LEASE);
    ck_assert_str_eq(lib_str(lease, "spec.holderIdentity"), "me");
}

static void upgrade(void)
{
    int64_t begun = lib_now_ms();
    free(helm(0, "upgrade",
              ARGV(CHART, "--set",
                   "memoryUnit=256MiB,extender.replicas=2,scvAgent.enabled=false",
                   "--wait")));
    cluster_report("helm upgrade --wait", lib_now_ms() - begun);
    /* The upgrade of docs/install.md: earlier values stay. */
    free(helm(0, "upgrade", ARGV(CHART, "--reset-then-reuse-values", "--wait")));
    ck_assert(scvs_have_temperatures());
    check_unit("256MiB");
    check_strategy("RollingUpdate", 2);
    ck_assert_uint_eq(peer_status(&cluster.api, AGENT), 404);
    check_lease();
    /* The default values again: no field of the earlier strategy remains. */
    free(helm(0, "upgrade", ARGV(CHART, "--reset-values", "--wait")));
    check_unit("GiB");
    check_strategy("Recreate", 1);
    ck_assert_uint_eq(peer_status(&cluster.api, AGENT), 200);
    check_lease();
}

/* The component runs on the nodes with GPUs that nobody left out. */
static void check_nodes_of(const char *component)
{
    cleanup_free char *label = xasprintf("component=%s", component);
    cleanup_free char *nodes = cluster_kubectl(
        ARGV("-n", SYSTEM, "get", "pods", "-l", label, "--sort-by", ".spec.nodeName",
             "-o", "jsonpath={.items[*].spec.nodeName}"));
    ck_assert_str_eq(nodes, "found gpu");
}

/* helm uninstall invalidates the token of this cluster's extender, so this is the last
 * test of the suite. */
START_TEST(a_release_is_installed_upgraded_and_removed_without_other_changes)
{
    cleanup_free char *chart = older_chart();
    free(cluster_kubectl(ARGV("delete", "-f", "manifests/")));
    cluster_create_bare_node("gpu", "gpushare", "true", CARDS(16384));
    cluster_create_bare_node("plane", "node-role.kubernetes.io/control-plane", "",
                             CARDS(16384));
    /* GPU Feature Discovery labels every node with GPUs; one is left to NVIDIA's plugin. */
    cluster_create_bare_node("found", "nvidia.com/gpu.present", "true", CARDS(16384));
    cluster_create_bare_node("left", "nvidia.com/gpu.present", "true", CARDS(16384));
    free(cluster_kubectl(ARGV("label", "node", "left", "gpushare=false")));
    cluster_create("/api/v1/namespaces/" SYSTEM "/configmaps",
                   "{\"metadata\":{\"name\":\"unhealthy-gpu-gpu\",\"labels\":{\"app\":"
                   "\"gpushare\"}},\"data\":{\"gpus\":\"1\"}}");
    cleanup_free char *before = everything();
    int64_t begun = lib_now_ms();
    cleanup_free char *notes = helm(0, "install", ARGV(chart, "--wait"));
    cluster_report("helm install --wait", lib_now_ms() - begun);
    ck_assert_contains(notes, "kubectl label node NODE gpushare=true\n");
    ck_assert_contains(notes, "https://127.0.0.1:32766/gpushare-scheduler");
    ck_assert_contains(notes, "delete lease gpushare-extender\n");
    ck_assert_contains(notes, "delete secret gpushare-extender-ca gpushare-extender-tls "
                              "gpushare-scheduler-tls");
    cleanup_free char *pods =
        cluster_kubectl(ARGV("-n", SYSTEM, "get", "pods", "-l", "app=gpushare",
                             "--field-selector", "status.phase=Running", "-o", "name"));
    ck_assert_contains(pods, "pod/scv-agent-");
    ck_assert_contains(pods, "pod/gpushare-device-plugin-ds-");
    ck_assert_contains(pods, "pod/gpushare-schd-extender-");
    check_nodes_of("scv-agent");
    check_nodes_of("gpushare-device-plugin");
    ck_assert(!scvs_have_temperatures());
    cluster_create_scv("gpu", CARDS(16384));
    hold_lease();
    upgrade();

    cleanup_free char *during = everything(), *lost = only_in(before, during);
    ck_assert_str_eq(lost, "");
    cleanup_free char *said = helm(0, "uninstall", ARGV("--wait"));
    ck_assert_contains(said, "[CustomResourceDefinition] " CRD);
    wait_for_rest(before);
    cleanup_free char *after = everything(), *gone = only_in(before, after);
    ck_assert_str_eq(gone, "");
    check_lease();

    /* The kept objects do not prevent another installation. */
    free(helm(0, "install", ARGV(CHART, "--wait")));
    check_lease();
    cleanup_json json_t *scv = object("/apis/core.run-linux.com/v1/scvs/gpu");
    ck_assert_str_ne(lib_str(scv, "metadata.uid"), "");
    free(helm(0, "uninstall", ARGV("--timeout", "60s")));
}
END_TEST

static const char *const up[] = {"--nodes", "0", NULL};
CLUSTER_MAIN("helm", 180, up, plain_files_become_a_release_and_back,
             a_second_extender_in_another_namespace_is_refused,
             a_managed_control_plane_with_a_node_port_stays_managed,
             a_node_port_in_use_is_no_managed_control_plane,
             the_platform_is_found_out_from_the_cluster, the_notes_name_the_next_command,
             the_daemonsets_of_k3s_use_the_runtime_of_nvidia,
             a_release_is_installed_upgraded_and_removed_without_other_changes)
