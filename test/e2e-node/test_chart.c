/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/inside.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"

/*
 * The chart, installed as a user would on a cluster of one real node: the extender and the program
 * of the nodes are its own Deployment and DaemonSet, from our images.
 */

#define KUBE_SYSTEM "/api/v1/namespaces/kube-system/"
#define EXTENDER    "gpushare-schd-extender"

enum { NODE_PORT = 32766 };

/* The first library folder of Debian's loader. */
#ifdef __aarch64__
#define LIBRARIES "/usr/lib/aarch64-linux-gnu"
#else
#define LIBRARIES "/usr/lib/x86_64-linux-gnu"
#endif

static const char *const programs[] = {"gpushare-extender", "gpushare-node"};
static const char *const workloads[] = {"deployment/gpushare-schd-extender",
                                        "daemonset/gpushare-device-plugin-ds"};

/* -- the machine -- */

/* Without the library, the driver's root has it. */
static void write_values(const char *name, const char *nodes, const char *library)
{
    static const char *const daemons[] = {"scvAgent", "devicePlugin"};
    cleanup_buf struct buf text = {0};
    /* kube-scheduler runs before the chart is installed, without certificates. The only node
     * gets its label of the control plane afterwards. */
    buf_printf(&text,
               "scheduler: {enabled: false}\nextender: {insecure: true, replicas: 1}\n%s",
               nodes);
    array_items(daemon, daemons)
        buf_printf(&text,
                   "%s:\n"
                   "  extraEnv: [{name: FAKE_NVML, value: /nvml}]\n"
                   "  extraVolumes:\n"
                   "  - {name: nvml, hostPath: {path: \"%s\", type: File}}\n%s"
                   "  extraVolumeMounts:\n"
                   "  - {name: nvml, mountPath: /nvml, readOnly: true}\n%s",
                   *daemon, node_write_cards(NULL),
                   library ? lib_fmt("  - {name: library, hostPath: {path: \"%s\", "
                                     "type: File}}\n",
                                     library)
                           : "",
                   library ? "  - {name: library, mountPath: " LIBRARIES
                             "/libnvidia-ml.so.1, readOnly: true}\n"
                           : "");
    temp_write(cluster.dir, name, text.p);
}

static void import(const char *file)
{
    struct err err = {0};
    ck_assert_done(real_import(file, &err), err);
}

/* Begins a test. False: not possible on this machine; the reason has been printed. */
static bool begin(void)
{
    struct err err = {0};
    node_daemons_are_pods();
    if (access(lib_fmt("%s/not-for-chart", cluster.dir), F_OK) == 0 || !node_decide(""))
        return false;
    peer_init(&cluster.extender.verbs, NODE_PORT);
    peer_init(&cluster.extender.observers, NODE_PORT);
    if (access(lib_fmt("%s/ready-for-chart", cluster.dir), F_OK) == 0)
        return true;
    if (real_start_proxy(&err)) {
        node_say(err.msg);
        temp_write(cluster.dir, "not-for-chart", "");
        return false;
    }
    array_items(program, programs)
        import(lib_built(lib_fmt("images/%s-" GPUSHARE_VERSION ".tar", *program)));
    write_values("values.yaml", "", node_nvml());
    write_values(
        "host-values.yaml",
        lib_fmt("gpuNodes: {nvml: host, driverRoot: \"%s/driver\"}\n", cell_dir()), NULL);
    temp_write(cluster.dir, "ready-for-chart", "");
    return true;
}

/* -- helm -- */

#define helm(...) cluster_tool("helm", 0, ARGV("-n", "kube-system", __VA_ARGS__))
#define RELEASE   "gpushare", CHART, "--values", lib_fmt("%s/values.yaml", cluster.dir)

/* What the notes of the chart have people do: the label of a node with GPUs, and, since the
 * node is the control plane as well, that. */
static void label_node(void)
{
    cluster_kubectl("label", "--overwrite", "node", NODE, "gpushare=true",
                    "node-role.kubernetes.io/control-plane=");
}

/* Waits until every program of the chart runs and works. */
static void wait_well(void)
{
    array_items(workload, workloads)
        cluster_kubectl("-n", "kube-system", "rollout", "status", *workload, "--timeout",
                        "60s");
    node_wait_well();
}

/* begin, and the steps of the installation that are not done yet. */
static bool up(void)
{
    if (!begin())
        return false;
    helm("upgrade", "--install", RELEASE);
    label_node();
    wait_well();
    return true;
}

/* -- state that must not change -- */

static json_t *containers_of(const json_t *pod)
{
    json_t *all = json_object(), *c;
    lib_each(c, lib_at(pod, "status.containerStatuses"))
        json_object_set_new(all, lib_str(c, "name"),
                            json_pack("{s:O, s:O}", "id", lib_at(c, "containerID"),
                                      "restarts", lib_at(c, "restartCount")));
    return all;
}

/* The state of the running pods that no change of the chart may affect: their containers
 * and promises. */
static json_t *remember(void)
{
    json_t *all = lib_own(json_object()), *pod;
    lib_each(pod, cluster_list(CLUSTER_PODS)) {
        if (strcmp(lib_str(pod, "status.phase"), "Running") != 0)
            continue;
        json_object_set_new(all, lib_str(pod, "metadata.uid"),
                            json_pack("{s:O, s:O, s:o}", "name",
                                      lib_at(pod, "metadata.name"), "promise",
                                      lib_at(pod, "metadata.annotations"), "containers",
                                      containers_of(pod)));
    }
    return all;
}

static void check_kept(json_t *before)
{
    const json_t *now = remember();
    const char *uid;
    json_t *was;
    ck_assert_uint_gt(json_object_size(before), 0);
    json_object_foreach(before, uid, was)
        ck_assert_str_eq(lib_text(json_object_get(now, uid), ""), lib_text(was, ""));
}

/* -- the whole way -- */

static void apply_sample(const char *name)
{
    temp_write(lib_dir, "sample.yaml", /* its image is an example */
               lib_output(0, ARGV("sed", "s,^ *image: .*,    image: " NODE_GUEST ",",
                                  lib_fmt("manifests/samples/%s.yaml", name))));
    cluster_kubectl("apply", "-f", lib_path("sample.yaml"));
}

static size_t count_items(const char *path)
{
    return json_array_size(cluster_list(path));
}

static size_t pods_of_ours(void)
{
    return count_items(
        KUBE_SYSTEM
        "pods?labelSelector=app%3Dgpushare&fieldSelector=spec.nodeName%21%3D");
}

/* Each runs what `make images` has made, and the extender is nobody. */
static void check_programs(void)
{
    static const char query[] = KUBE_SYSTEM
        "pods?labelSelector=app%3Dgpushare&fieldSelector=status.phase%3DRunning";
    lib_wait(count_items(query) ==
             ARRAY_LEN(workloads)); /* the kubelet writes the status a moment later */
    json_t *pod;
    lib_each(pod, cluster_list(query)) {
        const json_t *c = lib_at(pod, "status.containerStatuses.0");
        ck_assert_int_eq(strncmp(lib_str(c, "image"), "localhost/", 10), 0);
        ck_assert_int_eq(lib_int(c, "restartCount"), 0);
    }
    const char *ids =
        lib_output(-1, ARGV("sh", "-euc",
                            "for d in /proc/[0-9]*; do\n"
                            "  [ \"$(readlink $d/exe)\" = "
                            "/usr/local/bin/gpushare-extender ] || continue\n"
                            "  grep -E '^(Uid|Gid|CapEff|NoNewPrivs)' $d/status\n"
                            "done"));
    ck_assert_contains(ids, "Uid:\t65532\t65532\t65532\t65532\n");
    ck_assert_contains(ids, "Gid:\t65532\t65532\t65532\t65532\n");
    ck_assert_contains(ids, "CapEff:\t0000000000000000\n");
    ck_assert_contains(ids, "NoNewPrivs:\t1\n");
}

/* Through the API server's proxy to the chart's Service: ledger, annotations, Scv and the
 * extender's own view agree. What has just happened may not have reached everybody. */
static void check_with_the_plugin(void)
{
    node_check(ARGV("--extender=kube-system/gpushare-schd-extender:12345"),
               "no differences; compared with the extender\n");
}

TEST(what_the_chart_brings_gives_pods_their_cards)
{
    if (!begin())
        return;
    int64_t begun = lib_now_ms();
    ck_assert_contains(helm("install", RELEASE),
                       "http://127.0.0.1:32766/gpushare-scheduler");
    ck_assert_uint_eq(pods_of_ours(), 0); /* no node has a label that they want */
    label_node();
    wait_well();
    cluster_report("helm install, and a node that has units to give",
                   lib_now_ms() - begun);
    check_programs();
    node_create("whole", "whole"); /* while a card is free */
    lib_wait(cluster_bound("whole"));
    apply_sample("gpu-mem-several-cards");
    apply_sample("gpu-mem");
    apply_sample("spread");
    ck_assert_uint_eq(look_check(), 4);
    cluster_create_pod("big", 60, "", "");
    cluster_wait_refused("big", "needs 61440 MiB on one card");
    lib_wait(cluster_pod_metric(EXTENDER, 12346, "gpushare_ready") == 1 &&
             cluster_pod_metric(EXTENDER, 12346, "gpushare_pending_pods") == 1);
    lib_wait(node_metric("container_allocations") == 4);
    lib_wait(cluster_pod_metric("gpushare-device-plugin", 12347,
                                "scv_agent_healthcheck{name=\"scv\"}") == 1);
    check_with_the_plugin();
    look_finish();
}

/* -- an upgrade in the middle -- */

enum { BEFORE = 10, PAIRS = 2, MORE = 14, STEP_MS = 400 };

static void create_controllers(void)
{
    node_create_many("web", "equal", BEFORE);
    node_create_many("pair", "two", PAIRS);
    node_wait_running(BEFORE + PAIRS);
    ck_assert_uint_eq(look_check(), BEFORE + 2 * PAIRS);
}

/* Until the program ends, one pod more every moment; returns how many there are. */
static int add_pods_during(struct program *p)
{
    int n = BEFORE;
    int64_t next = 0;
    while (program_runs(p)) {
        oracle_check(&cluster.api);
        if (n < BEFORE + MORE && lib_now_ms() >= next) {
            node_scale("web", ++n);
            next = lib_now_ms() + STEP_MS;
        }
        lib_pause();
    }
    return n;
}

TEST(an_upgrade_leaves_alone_what_runs)
{
    struct program helm;
    if (!up())
        return;
    create_controllers();
    json_t *before = remember();
    json_t *old = cluster_list(KUBE_SYSTEM "pods?labelSelector=app%3Dgpushare");
    int64_t begun = lib_now_ms();
    program_start(&helm, lib_dir,
                  ARGV(cluster_program("helm"), "--kubeconfig",
                       lib_fmt("%s/admin.kubeconfig", cluster.dir), "-n", "kube-system",
                       "upgrade", RELEASE, "--set", "logLevel=debug", "--wait",
                       "--timeout", "90s"));
    int n = add_pods_during(&helm);
    free(program_end(&helm, 0));
    cluster_report("helm upgrade, both programs replaced", lib_now_ms() - begun);
    wait_well();
    json_t *pod;
    lib_each(pod, old) /* none of them was left as it was */
        lib_wait(peer_status(&cluster.api, lib_fmt(KUBE_SYSTEM "pods/%s",
                                                   lib_str(pod, "metadata.name"))) ==
                 404);
    ck_assert_int_gt(n, BEFORE);
    node_wait_running(n + PAIRS);
    printf("measured: pods that came meanwhile: %d\n", n - BEFORE);
    ck_assert_uint_eq(look_check(), (size_t)n + 2 * PAIRS);
    check_kept(before);
    oracle_check(&cluster.api);
    look_finish();
}

/* -- from 1.0.0, and back -- */

static void rolled(const char *const *these, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cluster_kubectl("-n", "kube-system", "rollout", "status", these[i], "--timeout",
                        "90s");
    node_wait_well();
}

/* At no time two plugins, each of which would take the kubelet's socket from the other. */
static void check_one_plugin(void)
{
    json_t *pod;
    size_t n = 0;
    lib_each(pod, cluster_list(KUBE_SYSTEM
                               "pods?labelSelector=component%3Dgpushare-device-plugin"))
        n += !*lib_str(pod, "metadata.deletionTimestamp");
    ck_assert_uint_le(n, 1);
}

/* Runs helm, and meanwhile adds pods and looks. */
static void change(const char *const *words, json_t *before, int *n)
{
    struct program helm;
    const char *argv[PROGRAM_ARGS] = {cluster_program("helm"), "--kubeconfig",
                                      lib_fmt("%s/admin.kubeconfig", cluster.dir), "-n",
                                      "kube-system"};
    program_args(argv, 5, words);
    program_start(&helm, lib_dir, argv);
    while (program_runs(&helm)) {
        oracle_check(&cluster.api);
        check_one_plugin();
        lib_pause();
    }
    free(program_end(&helm, 0));
    node_scale("web", ++*n);
    check_kept(before);
}

/* `make e2e-node FROM=REVISION` builds the images. */
TEST(an_upgrade_from_1_0_0_leaves_alone_what_runs)
{
    static const char *const of_former[] = {"gpushare-extender", "gpushare-device-plugin",
                                            "scv-agent"};
    static const char *const former[] = {"deployment/gpushare-schd-extender",
                                         "daemonset/gpushare-device-plugin-ds",
                                         "daemonset/scv-agent"};
    const char *images = getenv("FORMER_IMAGES");
    int n = BEFORE;
    if (!images || access(images, F_OK) != 0) {
        node_say("no images of a former revision: make e2e-node FROM=REVISION");
        return;
    }
    if (!begin())
        return;
    array_items(program, of_former)
        import(lib_fmt("%s/%s-former.tar", images, *program));
    helm("upgrade", "--install", "gpushare", "test/data/gpushare-1.0.0.tgz", "--values",
         lib_fmt("%s/values.yaml", cluster.dir), "--set", "image.tag=former");
    label_node();
    rolled(former, ARRAY_LEN(former));
    create_controllers();
    json_t *before = remember();
    const char *said = helm("history", "gpushare", "-o", "json");
    const json_t *all = lib_parse(said, strlen(said));
    const char *revision =
        lib_text(json_array_get(all, json_array_size(all) - 1), "revision");
    change(ARGV("upgrade", RELEASE, "--wait", "--timeout", "120s"), before, &n);
    rolled(workloads, ARRAY_LEN(workloads));
    node_wait_running((size_t)n + PAIRS);
    change(ARGV("rollback", "gpushare", revision, "--wait", "--timeout", "120s"), before,
           &n);
    rolled(former, ARRAY_LEN(former));
    node_wait_running((size_t)n + PAIRS);
    ck_assert_uint_eq(look_check(), (size_t)n + 2 * PAIRS);
    check_kept(before);
    oracle_check(&cluster.api);
    look_finish();
    helm("uninstall", "gpushare", "--wait");
}

/* -- gone, and back -- */

static bool is_there(const char *path)
{
    return peer_status(&cluster.api, path) == 200;
}

static bool has_restarted(const char *name)
{
    const json_t *c = lib_at(cluster_pod(name), "status.containerStatuses.0");
    return lib_int(c, "restartCount") == 1 && lib_at(c, "state.running");
}

/* The units of all cards. */
static json_int_t promised(void)
{
    const char *card;
    json_t *units, *all = oracle_promised(&cluster.api, NULL);
    json_int_t sum = 0;
    json_object_foreach(all, card, units) sum += json_integer_value(units);
    return sum;
}

TEST(what_runs_outlives_the_chart)
{
    if (!up())
        return;
    create_controllers();
    json_t *before = remember();
    node_create("one", "again");
    cluster_wait_running("again");
    json_int_t was = promised();
    helm("uninstall", "gpushare", "--wait");
    lib_wait(pods_of_ours() == 0 && node_allocatable() == 0);
    ck_assert(is_there("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
                       "scvs.core.run-linux.com"));
    ck_assert(is_there("/apis/core.run-linux.com/v1/scvs/" NODE));
    node_create("one", "late");
    cluster_wait_refused("late", "Insufficient aliyun.com/gpu-mem");
    /* A process that ends is started again by the kubelet, which knows its card. */
    inside_kill("again");
    lib_wait(has_restarted("again"));
    node_kill("kubelet"); /* it finds no plugin, and what runs goes on */
    real_wait_ready();
    check_kept(before);
    int64_t begun = lib_now_ms();
    helm("install", RELEASE);
    wait_well();
    cluster_report("installed again, all known", lib_now_ms() - begun);
    cluster_wait_running("late");
    ck_assert_uint_eq(look_check(), BEFORE + 2 * PAIRS + 2);
    check_kept(before);
    ck_assert_int_eq(promised(), was + 4); /* that of the pod that waited, and no more */
    look_finish();
}

/* -- without NVIDIA's container runtime -- */

TEST(the_driver_root_is_enough)
{
    if (!begin())
        return;
    inside_make_driver();
    helm("upgrade", "--install", "gpushare", CHART, "--values",
         lib_fmt("%s/host-values.yaml", cluster.dir));
    label_node();
    wait_well();
    node_create("one", "one-p");
    node_create("split", "split-p");
    cluster_wait_running("one-p");
    cluster_wait_running("split-p");
    unsigned one = inside_cards("one-p"), split = inside_cards("split-p");
    ck_assert_int_eq(__builtin_popcount(one), 1);
    ck_assert_int_eq(__builtin_popcount(split), 2);
    inside_check_opens("one-p", one, one);
    inside_check_opens("split-p", split, split);
    look_tell_refusals();
    cluster_delete_pods();
}

static int suite(void)
{
    cluster_no_extender();
    /* Outside of a cell nothing listens beside the loopback. */
    return node_run(ARGV("--empty", "--address", CELL_ADDRESS));
}

int main(void)
{
    return cell_run(suite);
}
