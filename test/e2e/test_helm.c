/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"

/*
 * helm with manifests/chart in a cluster: it installs, takes ownership of the objects of
 * `kubectl apply` and gives them back, upgrades the CRD, and leaves nothing but the CRD when
 * it uninstalls. (Containers that run through all this: test/e2e-node.)
 */

#define SYSTEM "kube-system"
#define CRD    "scvs.core.run-linux.com"
/* The objects of manifests/. */
#define AS_FILES "--set", "scheduler.enabled=false,extender.replicas=1"

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
#define AGENT      APPS "/daemonsets/scv-agent" /* where it is one of its own */
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

TEST(plain_files_become_a_release_and_back)
{
    static const char *const paths[] = {
        DEPLOYMENT, PLUGIN,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" CRD,
        "/api/v1/namespaces/nvidia-gpu-scheduler-node-lease"};
    const char *before[ARRAY_LEN(paths)];
    cluster_kubectl("-n", SYSTEM, "scale", "deployment", "gpushare-schd-extender",
                    "--replicas", "1");
    array_indices(i, paths)
        before[i] = state_of(paths[i]);
    ck_assert_contains(helm(1, "install", ARGV(CHART, AS_FILES)),
                       "exists and cannot be imported");
    ck_assert(!has_releases());
    helm(0, "install", ARGV(CHART, "--take-ownership", AS_FILES));
    ck_assert(has_releases());
    array_indices(i, paths)
        ck_assert_str_eq(state_of(paths[i]), before[i]);
    /* README.md of the chart: helm loses the release, and the plain files own the
     * objects again. */
    cluster_kubectl("-n", SYSTEM, "delete", "secret", "-l", "owner=helm,name=gpushare");
    ck_assert(!has_releases());
    cluster_kubectl("apply", "-f", "manifests/");
    array_indices(i, paths)
        ck_assert_str_eq(state_of(paths[i]), before[i]);
}

/* Two extenders with two Leases would both bind. */
TEST(a_second_extender_in_another_namespace_is_refused)
{
    ck_assert_contains(cluster_tool("helm", 1,
                                    ARGV("install", "gpushare", CHART, "-n", "gpu",
                                         "--create-namespace", "--take-ownership")),
                       "an extender is installed in namespace \"kube-system\", and "
                       "two of them would promise the same memory twice");
}

/* The limits of bound pods would mean other amounts. */
TEST(the_unit_stays_while_a_pod_has_a_promise)
{
    cluster_kubectl("--as", "system:serviceaccount:" SYSTEM ":gpushare-schd-extender",
                    "--as-group", "system:masters", "run", "promised", "--image", "i",
                    "--annotations", "ALIYUN_COM_GPU_MEM_IDX=0");
    ck_assert_contains(
        helm(1, "install",
             ARGV(CHART, "--dry-run=server", "--take-ownership", "--set",
                  "scheduler.enabled=false,memoryUnit=MiB")),
        "memoryUnit: pod default/promised has a promise, and --memory-unit=GiB is "
        "installed");
    dry_install("scheduler.enabled=false,memoryUnit=GiB");
    cluster_kubectl("delete", "pod", "promised", "--force");
    dry_install("scheduler.enabled=false,memoryUnit=MiB");
}

/* -- what an upgrade would take away -- */

static const char *refusal(const char *set)
{
    return helm(1, "install",
                ARGV(CHART, "--dry-run=server", "--take-ownership", "--set", set));
}

TEST(a_node_port_in_use_is_not_closed_unasked)
{
    static const char why[] = "scheduler.enabled: the kube-scheduler of this cluster may "
                              "call the extender through its node port";
    ck_assert_contains(refusal("platform=kubeadm"), why); /* of a release of 0.1 */
    ck_assert_contains(dry_install("scheduler.enabled=false,platform=kubeadm"),
                       "\nThe value platform has no effect any more");
    ck_assert_contains(dry_install("extender.service.type=NodePort"), "nodePort: 32766");
    dry_install("extender.service.type=ClusterIP");
    cluster_kubectl("-n", SYSTEM, "patch", "service", "gpushare-schd-extender", "-p",
                    "{\"spec\":{\"type\":\"ClusterIP\"}}");
    dry_install("logLevel=info");
}

/* 0.1 found it out on k3s and RKE2. */
TEST(a_runtime_class_in_use_is_not_dropped_unasked)
{
    static const char class[] = "      runtimeClassName: \"nvidia\"\n",
                      absent[] =
                          "has the RuntimeClass nvidia, which the DaemonSets do not";
    ck_assert_contains(
        refusal("gpuNodes.runtimeClassName=nvidia"),
        "gpuNodes.runtimeClassName: this cluster has no RuntimeClass nvidia");
    cluster_create("/apis/node.k8s.io/v1/runtimeclasses",
                   "{\"metadata\":{\"name\":\"nvidia\"},\"handler\":\"nvidia\"}");
    const char *said = dry_install("logLevel=info");
    ck_assert_contains(said, absent);
    ck_assert_lacks(said, class);
    ck_assert_lacks(dry_install("gpuNodes.nvml=host"), absent);
    cluster_kubectl(
        "-n", SYSTEM, "patch", "daemonset", "gpushare-device-plugin-ds", "-p",
        "{\"spec\":{\"template\":{\"spec\":{\"runtimeClassName\":\"nvidia\"}}}}");
    ck_assert_contains(
        refusal("logLevel=info"),
        "gpuNodes.runtimeClassName: DaemonSet gpushare-device-plugin-ds has "
        "RuntimeClass nvidia; set gpuNodes.runtimeClassName to it, or to none");
    said = dry_install("gpuNodes.runtimeClassName=nvidia");
    ck_assert_contains(said, class);
    ck_assert_contains(said, "`no runtime for \"nvidia\" is configured`");
    ck_assert_lacks(dry_install("gpuNodes.runtimeClassName=none"), class);
    cluster_kubectl("-n", SYSTEM, "patch", "daemonset", "gpushare-device-plugin-ds",
                    "--type", "json", "-p",
                    "[{\"op\":\"remove\",\"path\":\"/spec/template/spec/"
                    "runtimeClassName\"}]");
    cluster_delete("/apis/node.k8s.io/v1/runtimeclasses/nvidia");
}

/* Both would bind for a moment. */
TEST(the_go_extender_is_replaced_by_one_replica)
{
    cluster_kubectl("-n", SYSTEM, "patch", "deployment", "gpushare-schd-extender",
                    "--type", "json", "-p",
                    "[{\"op\":\"remove\",\"path\":\"/spec/template/spec/containers/0/"
                    "command\"}]");
    ck_assert_contains(refusal("logLevel=info"), "set extender.replicas to 1, and raise");
    dry_install("extender.replicas=1");
    cluster_kubectl("apply", "-f", "manifests/deployment.yaml");
}

TEST(the_notes_name_the_next_command)
{
    static const struct {
        const char *set, *has, *never;
    } cases[] = {
        {"scheduler.enabled=false", "     scripts/install\n\n", "rollout"},
        {"scheduler.enabled=false", "the node ([ADDRESS]:32766 with IPv6)", "CLUSTER-IP"},
        {"logLevel=info", "     ctr -n k8s.io images import", "scripts/install"},
        {"logLevel=info",
         "     kubectl -n kube-system rollout status deployment gpushare-scheduler\n",
         "scripts/install"},
        {"image.registry=r.example", "rollout status", "`make images`"},
        {"scheduler.enabled=false,extender.insecure=true",
         "     scripts/install --insecure\n", "--renew"},
        /* Every command and address follows the values. */
        {"scheduler.enabled=false,extender.service.nodePort=30001",
         "     scripts/install --address 127.0.0.1:30001\n", "32766"},
        {"scheduler.enabled=false,extender.service.nodePort=30001",
         "`scripts/install --check --address 127.0.0.1:30001`", "32766"},
        {"scheduler.enabled=false,extender.service.nodePort=30001",
         "     https://127.0.0.1:30001/gpushare-scheduler\n", "32766"},
        {"scheduler.enabled=false,extender.service.type=ClusterIP",
         "     scripts/install --address CLUSTER-IP:12345\n", "32766"},
        {"scheduler.enabled=false,extender.service.type=ClusterIP,"
         "extender.service.clusterIP=fd00::7",
         "     https://[fd00::7]:12345/gpushare-scheduler\n", "CLUSTER-IP"},
        {"scheduler.enabled=false,extender.hostNetwork=true,extender.replicas=1,"
         "extender.service.nodePort=30001",
         "     scripts/install --insecure --address 127.0.0.1:12345\n", "30001"},
        {"devicePlugin.nodeSelector.pool=gpu", "     kubectl label node NODE pool=gpu\n",
         "gpushare=true"},
    };
    array_items(c, cases) {
        const char *notes = strstr(dry_install(c->set), "\nNOTES:\n");
        ck_assert_ptr_nonnull(notes);
        ck_assert_contains(notes, c->has);
        ck_assert_msg(!strstr(notes, c->never), "%s: \"%s\" in: %s", c->set, c->never,
                      notes);
    }
}

/* -- the life of a release -- */

/* The chart of an older release: its CRD has no temperature, its values have no leaseSeconds. */
static char *older_chart(void)
{
    char *chart = lib_path("chart");
    lib_output(0, ARGV("cp", "-r", CHART, chart));
    lib_output(0, ARGV("sed", "-i", "/^ *temperature: /d",
                       lib_path("chart/templates/crd.yaml")));
    lib_output(0,
               ARGV("sed", "-i", "/^ *leaseSeconds: /d", lib_path("chart/values.yaml")));
    lib_output(0, ARGV("rm", "-r", lib_path("chart/templates/checks")));
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
    ck_assert_at(object(DEPLOYMENT), first, option);
    ck_assert_at(object(PLUGIN), first, option);
}

static void check_strategy(const char *type, int replicas)
{
    const json_t *extender = object(DEPLOYMENT);
    ck_assert_at(extender, "spec.strategy.type", type);
    ck_assert_int_eq(lib_int(extender, "spec.replicas"), replicas);
    ck_assert((lib_at(extender, "spec.strategy.rollingUpdate") != NULL) ==
              (strcmp(type, "Recreate") != 0));
}

/* What the extender and kube-scheduler would have made. */
static void run_programs(void)
{
    static const char *const leases[] = {"gpushare-extender", "gpushare-scheduler"},
                             *const secrets[] = {"gpushare-extender-ca",
                                                 "gpushare-extender-tls",
                                                 "gpushare-scheduler-tls"};
    array_items(lease, leases)
        cluster_create("/apis/coordination.k8s.io/v1/namespaces/" SYSTEM "/leases",
                       "{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"holderIdentity\":"
                       "\"me\"}}",
                       *lease);
    array_items(secret, secrets)
        cluster_create("/api/v1/namespaces/" SYSTEM "/secrets",
                       "{\"metadata\":{\"name\":\"%s\"},\"data\":{\"a\":\"eA==\"}}",
                       *secret);
}

static void check_lease(void)
{
    ck_assert_at(object(LEASE), "spec.holderIdentity", "me");
}

/* Whether the program of the nodes does both, or two of them one thing each. */
static void check_program(const char *command, unsigned agent)
{
    ck_assert_at(object(PLUGIN), "spec.template.spec.containers.0.command.0", command);
    ck_assert_uint_eq(peer_status(&cluster.api, AGENT), agent);
}

static void upgrade(void)
{
    ck_assert_contains(helm(1, "upgrade", ARGV(CHART, "--reuse-values")),
                       "use helm upgrade --reset-then-reuse-values");
    int64_t begun = lib_now_ms();
    helm(0, "upgrade",
         ARGV(CHART, "--set",
              "memoryUnit=256MiB,extender.replicas=1,scvAgent.enabled=false", "--wait"));
    cluster_report("helm upgrade --wait", lib_now_ms() - begun);
    /* The upgrade of docs/install.md: earlier values stay. */
    helm(0, "upgrade", ARGV(CHART, "--reset-then-reuse-values", "--wait"));
    ck_assert(scvs_have_temperatures());
    check_unit("256MiB");
    check_strategy("Recreate", 1);
    check_program("gpushare-device-plugin", 404);
    check_lease();
    /* On other nodes than the device plugin. */
    helm(0, "upgrade",
         ARGV(CHART, "--reset-values", "--set", "scvAgent.nodeSelector.gpu=x"));
    check_program("gpushare-device-plugin", 200);
    /* The default values again: no field of the earlier strategy remains. */
    helm(0, "upgrade", ARGV(CHART, "--reset-values", "--wait"));
    check_unit("GiB");
    check_strategy("RollingUpdate", 2);
    check_program("gpushare-node", 404);
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
TEST(a_release_is_installed_upgraded_and_removed_without_other_changes)
{
    char *chart = older_chart();
    /* It would create its Lease again before its rights are gone. */
    cluster_stop("gpushare-extender", "TERM");
    /* Without it, the pods and ReplicaSets of these objects would go during the test. */
    cluster_kubectl("delete", "--cascade=foreground", "-f", "manifests/");
    cluster_create_node("gpu", ",\"gpushare\":\"true\"", CARDS(16384));
    /* kubeadm's taint, on the only node that says its system: extender and kube-scheduler run there. */
    cluster_create_node("plane",
                        ",\"node-role.kubernetes.io/control-plane\":\"\","
                        "\"kubernetes.io/os\":\"linux\"",
                        CARDS(16384));
    cluster_kubectl("taint", "node", "plane",
                    "node-role.kubernetes.io/control-plane=:NoSchedule");
    /* GPU Feature Discovery labels every node with GPUs; one is left to NVIDIA's plugin. */
    cluster_create_node("found", ",\"nvidia.com/gpu.present\":\"true\"", CARDS(16384));
    cluster_create_node("left", ",\"nvidia.com/gpu.present\":\"true\"", CARDS(16384));
    cluster_kubectl("label", "node", "left", "gpushare=false");
    cluster_create("/api/v1/namespaces/" SYSTEM "/configmaps",
                   "{\"metadata\":{\"name\":\"unhealthy-gpu-gpu\",\"labels\":{\"app\":"
                   "\"gpushare\"}},\"data\":{\"gpus\":\"1\"}}");
    const char *before = cluster_everything();
    int64_t begun = lib_now_ms();
    const char *notes = helm(0, "install", ARGV(chart, "--wait"));
    cluster_report("helm install --wait", lib_now_ms() - begun);
    ck_assert_contains(notes, "kubectl label node NODE gpushare=true\n");
    ck_assert_contains(notes, "It leaves the namespace, and the CRD with every Scv:");
    char *pods =
        cluster_kubectl("-n", SYSTEM, "get", "pods", "-l", "app=gpushare",
                        "--field-selector", "status.phase=Running", "-o", "name");
    ck_assert_contains(pods, "pod/gpushare-device-plugin-ds-");
    ck_assert_contains(pods, "pod/gpushare-schd-extender-");
    /* `helm --wait` leaves one pod of a DaemonSet out. */
    lib_wait(runs_on_its_nodes("gpushare-device-plugin"));
    ck_assert(!scvs_have_temperatures());
    cluster_create_scv("gpu", CARDS(16384));
    run_programs();
    upgrade();

    ck_assert_str_eq(cluster_only_in(before, cluster_everything()), "");
    ck_assert_contains(helm(0, "uninstall", ARGV("--wait")),
                       "[CustomResourceDefinition] " CRD);
    cluster_wait_gone(before, ARGV("CustomResourceDefinition /" CRD " ",
                                   "APIService /v1.core.run-linux.com ", /* of the CRD */
                                   "Scv /gpu "));
    ck_assert_str_eq(cluster_only_in(before, cluster_everything()), "");

    /* The kept objects do not prevent another installation. */
    helm(0, "install", ARGV(CHART, "--wait"));
    object("/apis/core.run-linux.com/v1/scvs/gpu");
    helm(0, "uninstall", ARGV("--timeout", "60s"));
}

CLUSTER_MAIN(180)
