/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/inside.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"
#include "lib/tools.h"

/*
 * The chart, installed as a user would on a cluster of one real node: extender, scv-agent
 * and device plugin are its own Deployment and DaemonSets, from our images.
 */

#define KUBE_SYSTEM "/api/v1/namespaces/kube-system/"

enum { NODE_PORT = 32766 };

/* The first library folder of Debian's loader. */
#ifdef __aarch64__
#define LIBRARIES "/usr/lib/aarch64-linux-gnu"
#else
#define LIBRARIES "/usr/lib/x86_64-linux-gnu"
#endif

static const char *const programs[] = {"gpushare-extender", "gpushare-device-plugin",
                                       "scv-agent"};
static const char *const workloads[] = {"deployment/gpushare-schd-extender",
                                        "daemonset/gpushare-device-plugin-ds",
                                        "daemonset/scv-agent"};

/* -- the machine -- */

/* Without the library, the driver's root has it. */
static void write_values(const char *name, const char *nodes, const char *library)
{
    static const char *const daemons[] = {"scvAgent", "devicePlugin"};
    cleanup_free char *nvml = node_write_cards();
    cleanup_free char *volume =
        library ? xasprintf("  - {name: library, hostPath: {path: \"%s\", type: File}}\n",
                            library)
                : xstrdup("");
    cleanup_buf struct buf text = {0};
    /* kube-scheduler runs before the chart is installed, without certificates. The only node
     * gets its label of the control plane afterwards. */
    buf_printf(&text, "platform: kubeadm\nextender: {insecure: true}\n%s", nodes);
    for (size_t i = 0; i < ARRAY_LEN(daemons); i++)
        buf_printf(&text,
                   "%s:\n"
                   "  extraEnv: [{name: FAKE_NVML, value: /nvml}]\n"
                   "  extraVolumes:\n"
                   "  - {name: nvml, hostPath: {path: \"%s\", type: File}}\n%s"
                   "  extraVolumeMounts:\n"
                   "  - {name: nvml, mountPath: /nvml, readOnly: true}\n%s",
                   daemons[i], nvml, volume,
                   library ? "  - {name: library, mountPath: " LIBRARIES
                             "/libnvidia-ml.so.1, readOnly: true}\n"
                           : "");
    temp_write(cluster.dir, name, text.p);
}

static void import_images(void)
{
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        struct err err = {0};
        cleanup_free char *name = xasprintf("images/%s-0.1.0.tar", programs[i]);
        cleanup_free char *archive = program_path(name);
        ck_assert_done(real_import(archive, &err), err);
    }
}

/* Begins a test. False: not possible on this machine; the reason has been printed. */
static bool begin(void)
{
    cleanup_free char *yes = temp_path(cluster.dir, "ready-for-chart");
    cleanup_free char *no = temp_path(cluster.dir, "not-for-chart");
    struct err err = {0};
    node_daemons_are_pods();
    if (access(no, F_OK) == 0 || !node_decide(""))
        return false;
    cluster_extender_at(NODE_PORT);
    if (access(yes, F_OK) == 0)
        return true;
    if (real_start_proxy(&err)) {
        node_say(err.msg);
        temp_write(cluster.dir, "not-for-chart", "");
        return false;
    }
    import_images();
    cleanup_free char *library = node_nvml(), *driver = temp_path(cell_dir(), "driver");
    cleanup_free char *root =
        xasprintf("gpuNodes: {nvml: host, driverRoot: \"%s\"}\n", driver);
    write_values("values.yaml", "", library);
    write_values("host-values.yaml", root, NULL);
    temp_write(cluster.dir, "ready-for-chart", "");
    return true;
}

/* -- helm -- */

#define helm(...) tools_run("helm", 0, ARGV("-n", "kube-system", __VA_ARGS__))
#define RELEASE   "gpushare", CHART, "--values", values()

static const char *values(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/values.yaml", cluster.dir);
    return path;
}

/* Starts helm with the arguments, which end with NULL. */
static void start_helm(struct program *p, const char *const *args)
{
    cleanup_free char *helm = cluster_program("helm");
    cleanup_free char *config = temp_path(cluster.dir, "admin.kubeconfig");
    const char *argv[PROGRAM_ARGS] = {helm, "--kubeconfig", config, "--namespace",
                                      "kube-system"};
    program_args(argv, 5, args);
    program_start(p, lib_dir, argv);
}

/* What the notes of the chart have people do: the label of a node with GPUs, and, since the
 * node is the control plane as well, that. */
static void label_node(void)
{
    free(cluster_kubectl(ARGV("label", "--overwrite", "node", NODE, "gpushare=true",
                              "node-role.kubernetes.io/control-plane=")));
}

/* Waits until every program of the chart runs and works. */
static void wait_well(void)
{
    for (size_t i = 0; i < ARRAY_LEN(workloads); i++)
        free(cluster_kubectl(ARGV("-n", "kube-system", "rollout", "status", workloads[i],
                                  "--timeout", "60s")));
    node_wait_well();
}

/* begin, and the steps of the installation that are not done yet. */
static bool up(void)
{
    if (!begin())
        return false;
    free(helm("upgrade", "--install", RELEASE));
    label_node();
    wait_well();
    return true;
}

/* -- state that must not change -- */

static json_t *containers_of(const json_t *pod)
{
    json_t *all = json_object(), *c;
    size_t i;
    json_array_foreach(lib_at(pod, "status.containerStatuses"), i, c)
        json_object_set_new(all, lib_str(c, "name"),
                            json_pack("{s:O, s:O}", "id", lib_at(c, "containerID"),
                                      "restarts", lib_at(c, "restartCount")));
    return all;
}

/* The state of the running pods that no change of the chart may affect: their containers
 * and promises. New. */
static json_t *remember(void)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    json_t *all = json_object(), *pod;
    size_t i;
    json_array_foreach(pods, i, pod)
    {
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

static void check_kept(const json_t *before)
{
    cleanup_json json_t *now = remember();
    const char *uid;
    json_t *was;
    ck_assert_uint_gt(json_object_size(before), 0);
    json_object_foreach((json_t *)before, uid, was)
    {
        const json_t *is = json_object_get(now, uid);
        cleanup_free char *a = json_dumps(was, JSON_SORT_KEYS);
        cleanup_free char *b = is ? json_dumps(is, JSON_SORT_KEYS) : NULL;
        ck_assert_msg(json_equal(was, is), "what ran as\n%s\nis\n%s", a,
                      b ? b : "not running");
    }
}

/* -- the whole way -- */

static void apply_sample(const char *name)
{
    cleanup_free char *path = xasprintf("manifests/samples/%s.yaml", name);
    cleanup_buf struct buf text = {0}, mine = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 1 << 16, &text, &err), err);
    struct span rest = buf_span(&text);
    while (rest.n) { /* its image is an example */
        struct span line = span_cut(&rest, '\n');
        if (memmem(line.p, line.n, " image: ", 8))
            buf_adds(&mine, "    image: " NODE_GUEST "\n");
        else
            buf_printf(&mine, "%.*s\n", SPAN_ARG(line));
    }
    temp_write(lib_dir, "sample.yaml", mine.p);
    cleanup_free char *file = temp_path(lib_dir, "sample.yaml");
    free(cluster_kubectl(ARGV("apply", "-f", file)));
}

/* /metrics of the component has a line that begins with `sample`. */
static void ck_metric(const char *component, unsigned port, const char *sample)
{
    cleanup_buf struct buf reply = {0};
    cleanup_free char *line = xasprintf("\n%s", sample);
    ck_assert_msg(cluster_pod_answers(component, port, "/metrics", &reply),
                  "%s does not answer: %s", component, reply.p);
    ck_assert_contains(reply.p, line);
}

static size_t pods_of_ours(void)
{
    cleanup_json json_t *pods = cluster_items(
        KUBE_SYSTEM
        "pods?labelSelector=app%3Dgpushare&fieldSelector=spec.nodeName%21%3D");
    return json_array_size(pods);
}

/* Each runs what `make images` has made, and the extender is nobody. */
static void check_programs(void)
{
    cleanup_json json_t *pods =
        cluster_items(KUBE_SYSTEM "pods?labelSelector=app%3Dgpushare");
    size_t i;
    json_t *pod;
    ck_assert_uint_eq(json_array_size(pods), 3);
    json_array_foreach(pods, i, pod)
    {
        const json_t *c = lib_at(pod, "status.containerStatuses.0");
        ck_assert_int_eq(strncmp(lib_str(c, "image"), "localhost/", 10), 0);
        ck_assert_int_eq(json_integer_value(lib_at(c, "restartCount")), 0);
    }
    cleanup_free char *ids = NULL;
    struct program p;
    program_start(&p, lib_dir,
                  ARGV("sh", "-euc",
                       "for d in /proc/[0-9]*; do\n"
                       "  [ \"$(readlink $d/exe)\" = /usr/local/bin/gpushare-extender ] "
                       "|| continue\n"
                       "  grep -E '^(Uid|Gid|CapEff|NoNewPrivs)' $d/status\n"
                       "done"));
    program_wait(&p);
    ids = xstrdup(program_output(&p));
    program_fini(&p);
    ck_assert_contains(ids, "Uid:\t65532\t65532\t65532\t65532\n");
    ck_assert_contains(ids, "Gid:\t65532\t65532\t65532\t65532\n");
    ck_assert_contains(ids, "CapEff:\t0000000000000000\n");
    ck_assert_contains(ids, "NoNewPrivs:\t1\n");
}

/* Through the API server's proxy to the chart's Service: ledger, annotations, Scv and the
 * extender's own view agree. What has just happened may not have reached everybody. */
static void check_with_the_plugin(void)
{
    cleanup_free char *config = temp_path(cluster.dir, "admin.kubeconfig");
    cleanup_free char *said = NULL;
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    do {
        struct program p;
        cleanup_free char *plugin = program_path("kubectl-inspect-gpushare");
        ck_assert_msg(lib_now_ms() < end, "--check says: %s", said);
        free(said);
        program_start(&p, lib_dir,
                      ARGV(plugin, "--kubeconfig", config, "--check",
                           "--extender=kube-system/gpushare-schd-extender:12345"));
        program_wait(&p);
        said = xstrdup(program_output(&p));
        program_fini(&p);
    } while (!strstr(said, "no differences; compared with the extender\n"));
}

START_TEST(what_the_chart_brings_gives_pods_their_cards)
{
    if (!begin())
        return;
    int64_t begun = lib_now_ms();
    cleanup_free char *notes = helm("install", RELEASE);
    ck_assert_contains(notes, "http://127.0.0.1:32766/gpushare-scheduler");
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
    ck_metric("gpushare-schd-extender", 12346, "gpushare_ready 1\n");
    ck_metric("gpushare-schd-extender", 12346, "gpushare_pending_pods 1\n");
    ck_metric("gpushare-device-plugin", 12348,
              "gpushare_plugin_container_allocations 4\n");
    ck_metric("scv-agent", 12347, "scv_agent_healthcheck{");
    check_with_the_plugin();
    look_finish();
}
END_TEST

/* -- an upgrade in the middle -- */

enum { BEFORE = 10, PAIRS = 2, MORE = 14, STEP_MS = 400 };

static void create_controllers(void)
{
    node_create_many("Deployment", "web", "equal", BEFORE);
    node_create_many("ReplicaSet", "pair", "two", PAIRS);
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
            node_scale("Deployment", "web", ++n);
            next = lib_now_ms() + STEP_MS;
        }
        lib_pause();
    }
    return n;
}

START_TEST(an_upgrade_leaves_alone_what_runs)
{
    struct program helm;
    if (!up())
        return;
    create_controllers();
    cleanup_json json_t *before = remember();
    cleanup_json json_t *old =
        cluster_items(KUBE_SYSTEM "pods?labelSelector=app%3Dgpushare");
    int64_t begun = lib_now_ms();
    start_helm(&helm, ARGV("upgrade", RELEASE, "--set", "logLevel=debug",
                                 "--wait", "--timeout", "90s"));
    int n = add_pods_during(&helm);
    ck_assert_msg(program_wait(&helm) == 0, "helm: %s", program_output(&helm));
    program_fini(&helm);
    cluster_report("helm upgrade, all three programs replaced", lib_now_ms() - begun);
    wait_well();
    size_t i;
    json_t *pod;
    json_array_foreach(old, i, pod) /* none of them was left as it was */
    {
        cleanup_free char *path =
            xasprintf(KUBE_SYSTEM "pods/%s", lib_str(pod, "metadata.name"));
        lib_wait(peer_status(&cluster.api, path) == 404);
    }
    ck_assert_int_gt(n, BEFORE);
    node_wait_running(n + PAIRS);
    printf("measured: pods that came meanwhile: %d\n", n - BEFORE);
    ck_assert_uint_eq(look_check(), (size_t)n + 2 * PAIRS);
    check_kept(before);
    oracle_check(&cluster.api);
    look_finish();
}
END_TEST

/* -- gone, and back -- */

static bool is_there(const char *path)
{
    return peer_status(&cluster.api, path) == 200;
}

static bool has_restarted(const char *name)
{
    cleanup_json json_t *pod = cluster_pod(name);
    const json_t *c = lib_at(pod, "status.containerStatuses.0");
    return json_integer_value(lib_at(c, "restartCount")) == 1 &&
           lib_at(c, "state.running");
}

/* A process that ends is started again by the kubelet, which knows its card. */
static void restart(const char *name)
{
    struct err err = {0};
    cleanup_json json_t *pod = cluster_pod(name);
    ck_assert_done(real_kill(lib_str(pod, "status.containerStatuses.0.containerID"), &err), err);
    lib_wait(has_restarted(name));
}

START_TEST(what_runs_outlives_the_chart)
{
    if (!up())
        return;
    create_controllers();
    cleanup_json json_t *before = remember();
    node_create("one", "again");
    cluster_wait_running("again");
    cleanup_json json_t *promised = oracle_promised(&cluster.api);
    free(helm("uninstall", "gpushare", "--wait"));
    lib_wait(pods_of_ours() == 0 && node_allocatable() == 0);
    ck_assert(is_there("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
                       "scvs.core.run-linux.com"));
    ck_assert(is_there("/apis/core.run-linux.com/v1/scvs/" NODE));
    node_create("one", "late");
    cluster_wait_refused("late", "Insufficient aliyun.com/gpu-mem");
    restart("again");
    node_kill("kubelet"); /* it finds no plugin, and what runs goes on */
    real_wait_ready();
    check_kept(before);
    int64_t begun = lib_now_ms();
    free(helm("install", RELEASE));
    wait_well();
    cluster_report("installed again, all known", lib_now_ms() - begun);
    cluster_wait_running("late");
    ck_assert_uint_eq(look_check(), BEFORE + 2 * PAIRS + 2);
    check_kept(before);
    cleanup_json json_t *now = oracle_promised(&cluster.api);
    json_int_t was = 0, is = 0;
    const char *card;
    json_t *units;
    json_object_foreach(promised, card, units) was += json_integer_value(units);
    json_object_foreach(now, card, units) is += json_integer_value(units);
    ck_assert_int_eq(is, was + 4); /* and no more than that of the pod that waited */
    look_finish();
}
END_TEST

/* -- without NVIDIA's container runtime -- */

START_TEST(the_driver_root_is_enough)
{
    if (!begin())
        return;
    cleanup_free char *driver = inside_make_driver();
    cleanup_free char *values = temp_path(cluster.dir, "host-values.yaml");
    free(helm("upgrade", "--install", "gpushare", CHART, "--values", values));
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
END_TEST

static int suite(void)
{
    const TTest *const tests[] = {
        what_the_chart_brings_gives_pods_their_cards, an_upgrade_leaves_alone_what_runs,
        what_runs_outlives_the_chart, the_driver_root_is_enough};
    cluster_no_extender();
    /* Outside of a cell nothing listens beside the loopback. */
    return node_run("chart-on-node", tests, ARRAY_LEN(tests),
                    ARGV("--empty", "--address", CELL_ADDRESS));
}

int main(void)
{
    return cell_run(suite);
}
