/* SPDX-License-Identifier: Apache-2.0 */

/* The node of the suites: which kubelet, the two daemons, pods and controllers. */

#include "e2e-node/node.h"

#include "e2e-node/cell.h"
#include "e2e-node/look.h"
#include "e2e-node/real.h"

#define PLUGIN "gpushare-device-plugin"
#define AGENT  "scv-agent"

enum { PLUGIN_PORT = 12348 };

const struct node_card node_cards[NODE_CARDS] = {
    {"GPU-11111111-0a0a-4b4b-8c8c-000000000001", 8, 0, "2:3c,2:3d"},
    {"GPU-22222222-0a0a-4b4b-8c8c-000000000002", 16, 0, "2:3b,2:3e"},
    {"GPU-33333333-0a0a-4b4b-8c8c-000000000003", 16, 1, "2:3b,2:3e"},
    {"GPU-44444444-0a0a-4b4b-8c8c-000000000004", 56, 1, "2:3c,2:3d"},
};

const char *const node_instances[NODE_INSTANCES] = {
    "MIG-55555555-0a0a-4b4b-8c8c-000000000001",
    "MIG-66666666-0a0a-4b4b-8c8c-000000000002",
};

/* In this test process. */
static bool are_pods; /* scv-agent and the plugin */
static bool are_one;  /* they are gpushare-node */
static bool is_split; /* card NODE_SPLIT */
static const char *driver = "535.129.03";

/* -- the two daemons -- */

char *node_built(const char *name)
{
    /* The name of a program may be a link, and says its mode. */
    const char *dir = lib_keep(realpath(lib_built(""), NULL), free);
    char *path = lib_fmt("%s/%s", dir, name);
    ck_assert_msg(access(path, F_OK) == 0, "there is no %s", path);
    return path;
}

char *node_nvml(void)
{
    return node_built("fake-nvml/libnvidia-ml.so.1");
}

char *node_write_cards(const struct node_use *of_each)
{
    const char *text = lib_fmt("driver %s\ncuda 12020\n", driver);
    for (int i = 0; i < NODE_CARDS; i++) {
        const struct node_use use = of_each ? of_each[i] : (struct node_use){"", 0};
        long long total = (long long)node_cards[i].units << 30;
        ck_assert_int_le(use.bytes, total);
        text = lib_fmt("%scard uuid=%s;name=Tesla "
                       "T4;bus=%02x;minor=%d;total=%lld;free=%lld;used=%lld;"
                       "reserved=0;util=0;temp=30;events=15;processes=%s;links=%s;"
                       "path=50,50,50,50;affinity=%d%s\n",
                       text, node_cards[i].uuid, 0x3b + i, i, total, total - use.bytes,
                       use.bytes, use.processes, node_cards[i].links,
                       1 << node_cards[i].numa_node,
                       is_split && i == NODE_SPLIT ? ";mig=1;instances=7" : "");
    }
    for (int i = 0; i < NODE_INSTANCES && is_split; i++) {
        long long total = (long long)node_cards[NODE_SPLIT].units << 30;
        text =
            lib_fmt("%sinstance card=%d;at=%d;uuid=%s;name=NVIDIA A100 MIG " NODE_PROFILE
                    ";total=%lld;free=%lld;used=0;reserved=0;gi=%d;ci=0\n",
                    text, NODE_SPLIT, i, node_instances[i], total / NODE_INSTANCES,
                    total / NODE_INSTANCES, i + 1);
    }
    temp_write(cluster.dir, "nvml", text);
    return lib_fmt("%s/nvml", cluster.dir);
}

void node_split_card(void)
{
    is_split = true;
    node_write_cards(NULL);
}

void node_set_driver(const char *version)
{
    driver = version;
    node_write_cards(NULL);
}

char *node_limits(void)
{
    return lib_fmt("%s/limits", cluster.dir);
}

const char *node_cgroups(void)
{
    static const char unified[] = "/sys/fs/cgroup/unified";
    return access(unified, F_OK) == 0 ? unified : "/sys/fs/cgroup";
}

/* Both end with NULL; `more` may be empty. They outlive the test. */
static void start_daemon(const char *program, const char *const *first,
                         const char *const *more)
{
    char *name = lib_fmt("%s.kubeconfig", program);
    const char *argv[PROGRAM_ARGS] = {"env",
                                      lib_fmt("FAKE_NVML=%s/nvml", cluster.dir),
                                      lib_fmt("FAKE_LIMITS=%s", node_limits()),
                                      lib_fmt("FAKE_CGROUP_ROOT=%s", node_cgroups()),
                                      node_built(are_one ? "gpushare-node" : program),
                                      "--listen",
                                      "127.0.0.1",
                                      "--node-name",
                                      NODE,
                                      "--kubeconfig",
                                      lib_fmt("%s/%s", cluster.dir, name),
                                      "--gpu-source",
                                      lib_fmt("nvml:%s", node_nvml())};
    free(lib_kubeconfig(name, "https", cluster.api.port,
                        lib_fmt(", certificate-authority: \"%s\"", cluster_pki("ca.crt")),
                        lib_fmt("token: \"%s\"", cluster_token_of(PLUGIN, NODE))));
    temp_write(cluster.dir, name, lib_read(name));
    program_args(argv, program_args(argv, 13, first), more);
    cluster_add_program(program, argv);
}

static size_t plugin_starts(void)
{
    const char *log = lib_fmt("%s/log/" PLUGIN ".log", cluster.dir);
    size_t n = 0;
    log = access(log, F_OK) == 0 ? lib_file(log) : "";
    while ((log = strstr(log, "listening on "))) {
        log++;
        n++;
    }
    return n;
}

void node_start_plugin(const char *const *more)
{
    size_t before = plugin_starts();
    start_daemon(PLUGIN,
                 ARGV("--plugin-dir", NODE_PLUGINS, "--podresources-socket",
                      NODE_PODRESOURCES, "--state-file",
                      lib_fmt("%s/state.json", cluster.dir), "--reconcile-interval", "2s",
                      "--sample-interval", "1s"),
                 more);
    /* A plugin that was running at the same port answers for a moment, as registered. */
    lib_wait(plugin_starts() > before);
}

static void start_agent(void)
{
    start_daemon(
        AGENT, ARGV("--podresources-socket", NODE_PODRESOURCES, "--pods-interval", "1s"),
        NULL);
}

double node_metric(const char *name)
{
    struct peer plugin;
    const char *sample = lib_fmt("gpushare_plugin_%s", name);
    if (are_pods)
        return cluster_pod_metric(PLUGIN, PLUGIN_PORT, sample);
    peer_init(&plugin, PLUGIN_PORT); /* of the cell */
    double value = peer_metric(&plugin, sample);
    peer_fini(&plugin);
    return value;
}

/* -- the node -- */

void node_say(const char *why)
{
    const char *wish = getenv("E2E_NODE");
    ck_assert_msg(!wish || strcmp(wish, "real") != 0,
                  "E2E_NODE=real, and no containers here: %s", why);
    printf("measured: nothing, because no containers run here: %s\n", why);
    fflush(stdout);
}

/* A file records the decision for the following tests. */
bool node_decide(const char *labels)
{
    char *yes = lib_fmt("%s/containers", cluster.dir);
    struct err err = {0};
    if (access(lib_fmt("%s/no-containers", cluster.dir), F_OK) == 0 ||
        access(yes, F_OK) == 0)
        return access(yes, F_OK) == 0;
    int64_t begun = lib_now_ms();
    bool failed = real_start(labels, &err) != 0;
    if (failed) {
        real_stop();
        cluster_delete_pods();
        node_say(err.msg);
    } else {
        cluster_report("from nothing to a container on a real kubelet",
                       lib_now_ms() - begun);
    }
    temp_write(cluster.dir, failed ? "no-containers" : "containers", "");
    return !failed;
}

TEST(this_machine_runs_containers_or_says_why_not)
{
    if (cell_why_not())
        node_say(cell_why_not());
}

int node_run(const char *const *args)
{
    if (cell_why_not()) {
        setenv("UNIT_TEST", "this_machine_runs_containers_or_says_why_not", 1);
        return lib_run(10, (struct unit_fixtures){0});
    }
    cluster_keep_nodes();
    return cluster_run(400, args);
}

void node_daemons_are_one(void)
{
    are_one = true;
}

void node_daemons_are_pods(void)
{
    are_pods = true;
}

static int allocatable(const char *resource)
{
    return atoi(lib_in(peer_get(&cluster.api, "/api/v1/nodes/" NODE),
                       "status.allocatable", resource));
}

int node_allocatable(void)
{
    return allocatable("aliyun.com/gpu-mem");
}

void node_stop_plugin(void)
{
    cluster_stop(PLUGIN, "TERM");
    lib_wait(node_allocatable() == 0);
}

/* Cards and instances. */
static size_t cards_now(void)
{
    return NODE_CARDS + (is_split ? NODE_INSTANCES - 1 : 0);
}

static bool is_known(void)
{
    json_t *n = extender_node(&cluster.extender, NODE);
    return strcmp(lib_str(n, "source"), "scv") == 0 &&
           lib_int(n, "totalGPU") == NODE_UNITS && lib_size(n, "devs") == cards_now();
}

void node_wait_well(void)
{
    real_wait_ready();
    extender_wait_answers(&cluster.extender);
    lib_wait(node_metric("registered{resource=\"aliyun.com/gpu-mem\"}") == 1 &&
             node_metric("registered{resource=\"aliyun.com/gpu-count\"}") == 1 &&
             node_metric("registered{resource=\"aliyun.com/gpu-core.percentage\"}") !=
                 0 &&
             node_metric("registered{resource=\"aliyun.com/gpu-share\"}") != 0);
    lib_wait(node_allocatable() == NODE_UNITS &&
             allocatable("aliyun.com/gpu-count") == (int)cards_now());
    lib_wait(is_known());
}

bool node_up(void)
{
    return node_up_with(NULL);
}

bool node_up_with(const char *const *more)
{
    if (!node_decide("gpushare=true"))
        return false;
    node_write_cards(NULL);
    if (!cluster_runs("kubelet"))
        cluster_start("kubelet");
    if (!are_one && !cluster_runs(AGENT))
        start_agent();
    node_start_plugin(more);
    node_wait_well();
    const json_t *held;
    lib_wait((held = look_held()) && json_object_size(held) == 0);
    return true;
}

void node_kill(const char *program)
{
    size_t before = plugin_starts();
    cluster_stop(program, "KILL");
    cluster_start(program);
    lib_wait(strcmp(program, PLUGIN) != 0 || plugin_starts() > before);
}

void node_check(const char *const *options, const char *words)
{
    const char *said, *argv[PROGRAM_ARGS] = {"--check", "--kubeconfig",
                                             lib_fmt("%s/admin.kubeconfig", cluster.dir)};
    program_args(argv, 3, options);
    lib_wait_saying(
        strstr(said = lib_output_of(-1, "kubectl-inspect-gpushare", argv), words),
        "--check says: %s", said);
}

/* -- pods -- */

enum role { APP, INIT, SIDECAR };

static const struct kind {
    const char *name, *labels;
    struct part {
        const char *resource;
        int n;
        enum role role;
    } parts[3];
} kinds[] = {
    {"none", "", {{"", 0, APP}}},
    {"equal", "", {{"gpu-mem", 2, APP}}},
    {"one", "", {{"gpu-mem", 4, APP}}},
    {"two", "", {{"gpu-mem", 2, APP}, {"gpu-mem", 4, APP}}},
    {"init", "", {{"gpu-mem", 3, INIT}, {"gpu-mem", 3, APP}}},
    {"side", "", {{"gpu-mem", 1, SIDECAR}, {"gpu-mem", 2, APP}}},
    {"split", ",\"aliyun.com/gpu-count\":\"2\"", {{"gpu-mem", 4, APP}}},
    {"quad", ",\"aliyun.com/gpu-count\":\"4\"", {{"gpu-mem", 4, APP}}},
    {"whole", "", {{"gpu-count", 1, APP}}},
    {"wholes", "", {{"gpu-count", 4, APP}}},
};

static const struct kind *find_kind(const char *name)
{
    array_items(c, kinds)
        if (strcmp(c->name, name) == 0)
            return c;
    ck_abort_msg("there are no pods of kind %s", name);
    return NULL;
}

static const char *part_of(const char *before, size_t i, const struct part *p)
{
    static const char *const more[] = {
        [APP] = "",
        [INIT] = ",\"args\":[\"once\"]",
        [SIDECAR] = ",\"restartPolicy\":\"Always\"",
    };
    return lib_fmt("%s%s{\"name\":\"%c\",\"image\":\"" NODE_GUEST
                   "\",\"imagePullPolicy\":\"Never\"%s,\"resources\":{\"limits\":{%s}}}",
                   before, *before ? "," : "", (int)('c' + i), more[p->role],
                   p->n ? lib_fmt("\"aliyun.com/%s\":\"%d\"", p->resource, p->n) : "");
}

/* Its members "metadata", with the further ones, and "spec". */
static char *members_of(const char *name, const char *metadata)
{
    const struct kind *kind = find_kind(name);
    const char *apps = "", *inits = "";
    for (size_t i = 0; i < ARRAY_LEN(kind->parts) && kind->parts[i].resource; i++) {
        const char **list = kind->parts[i].role == APP ? &apps : &inits;
        *list = part_of(*list, i, &kind->parts[i]);
    }
    return lib_fmt(
        "\"metadata\":{\"labels\":{\"app\":\"%s\"%s}%s},\"spec\":{\"containers\":[%s],"
        "\"initContainers\":[%s],\"automountServiceAccountToken\":false,"
        "\"enableServiceLinks\":false,\"terminationGracePeriodSeconds\":5}",
        name, kind->labels, metadata, apps, inits);
}

char *node_pod(const char *kind, const char *name)
{
    return lib_fmt(
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",%s}",
        members_of(kind, lib_fmt(",\"namespace\":\"default\",\"name\":\"%s\"", name)));
}

void node_create(const char *kind, const char *name)
{
    peer_do(&cluster.api, "POST", CLUSTER_PODS, node_pod(kind, name));
}

static char *static_file(const char *name)
{
    return lib_fmt(CELL_STATIC "/%s.json", name);
}

/* The kubelet reads every file of the folder, also a partial one. */
void node_create_static(const char *kind, const char *name)
{
    temp_write(CELL_KUBERNETES, "static-pod", node_pod(kind, name));
    ck_assert_int_eq(rename(CELL_KUBERNETES "/static-pod", static_file(name)), 0);
}

void node_remove_static(const char *name)
{
    ck_assert_int_eq(unlink(static_file(name)), 0);
}

/* -- controllers -- */

#define DEPLOYMENTS "/apis/apps/v1/namespaces/default/deployments"

void node_create_many(const char *name, const char *kind, int n)
{
    cluster_create(
        DEPLOYMENTS,
        "{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"replicas\":%d,\"selector\":"
        "{\"matchLabels\":{\"app\":\"%s\"}},\"template\":{%s}}}",
        name, n, kind, members_of(kind, ""));
}

void node_scale(const char *name, int n)
{
    peer_do(&cluster.api, "PATCH", lib_fmt(DEPLOYMENTS "/%s", name),
            lib_fmt("{\"spec\":{\"replicas\":%d}}", n));
}

static bool all_run(int n)
{
    int alive = 0;
    json_t *pod;
    lib_each(pod, cluster_list(CLUSTER_PODS)) {
        const char *phase = lib_str(pod, "status.phase");
        if (strcmp(phase, "Failed") == 0)
            continue;
        alive++;
        if (strcmp(phase, "Running") != 0 || *lib_str(pod, "metadata.deletionTimestamp"))
            return false;
    }
    return alive == n;
}

void node_wait_running(int n)
{
    lib_wait_within(2 * LIB_WAIT_MS, all_run(n), "there are not %d pods that run", n);
}
