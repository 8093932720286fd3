/* SPDX-License-Identifier: Apache-2.0 */

/* The node of the suites: which kubelet, the two daemons, pods and controllers. */

#include "e2e-node/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/cell.h"
#include "e2e-node/look.h"
#include "e2e-node/real.h"

#define PLUGIN "gpushare-device-plugin"
#define AGENT  "scv-agent"

enum { LOG_MAX = 64 << 20, PLUGIN_PORT = 12348 };

const struct node_card node_cards[NODE_CARDS] = {
    {"GPU-11111111-0a0a-4b4b-8c8c-000000000001", 8},
    {"GPU-22222222-0a0a-4b4b-8c8c-000000000002", 24},
    {"GPU-33333333-0a0a-4b4b-8c8c-000000000003", 16},
    {"GPU-44444444-0a0a-4b4b-8c8c-000000000004", 48},
};

/* State of this test process. */
static struct {
    bool pods;
    size_t log_start; /* offset in the plugin's log at its last start */
} node;

/* -- the two daemons -- */

static char *log_of(const char *program)
{
    cleanup_free char *path = xasprintf("%s/log/%s.log", cluster.dir, program);
    struct buf log = {0};
    if (file_read(path, LOG_MAX, &log, NULL))
        buf_fini(&log);
    return buf_take(&log);
}

static void hear(void)
{
    cleanup_free char *log = log_of(PLUGIN);
    node.log_start = strlen(log);
}

/* The plugin's port since its last start; 0: not listening yet. */
static unsigned plugin_port(void)
{
    cleanup_free char *log = log_of(PLUGIN);
    const char *at = strstr(log + (node.log_start < strlen(log) ? node.log_start : 0),
                            "listening on 127.0.0.1:");
    if (!at || !strchr(at, '\n'))
        return 0;
    return (unsigned)strtoul(strchr(at, ':') + 1, NULL, 10);
}

char *node_nvml(void)
{
    cleanup_free char *relative = program_path("fake-nvml/libnvidia-ml.so.1");
    char *path = realpath(relative, NULL);
    ck_assert_msg(path != NULL, "there is no %s", relative);
    return path;
}

char *node_write_cards(void)
{
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "driver 535.129.03\ncuda 12020\n");
    for (int i = 0; i < NODE_CARDS; i++) {
        long long bytes = (long long)node_cards[i].units << 30;
        buf_printf(&text,
                   "card uuid=%s;name=Tesla T4;bus=%02x;minor=%d;total=%lld;free=%lld;"
                   "used=0;reserved=0;util=0;temp=30;events=15;processes=\n",
                   node_cards[i].uuid, 0x3b + i, i, bytes, bytes);
    }
    temp_write(cluster.dir, "nvml", text.p);
    return temp_path(cluster.dir, "nvml");
}

/* Writes a kubeconfig with the token of the daemon's pod on the node. Returns its path, new. */
static char *kubeconfig_of(const char *component)
{
    cleanup_free char *token = cluster_token_of(component, NODE);
    cleanup_free char *name = xasprintf("%s.kubeconfig", component);
    cleanup_free char *text =
        xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                  "contexts:\n- {name: c, context: {cluster: c, user: u}}\n"
                  "clusters:\n- {name: c, cluster: {server: \"https://127.0.0.1:%u\", "
                  "certificate-authority: \"%s/pki/ca.crt\"}}\n"
                  "users:\n- {name: u, user: {token: \"%s\"}}\n",
                  cluster.api.port, cluster.dir, token);
    temp_write(cluster.dir, name, text);
    return temp_path(cluster.dir, name);
}

/* Both end with NULL; `more` may be empty. */
static void start_daemon(const char *program, const char *const *first,
                         const char *const *more)
{
    cleanup_free char *relative = program_path(program);
    cleanup_free char *path = realpath(relative, NULL), *nvml = node_nvml();
    cleanup_free char *script = xasprintf("FAKE_NVML=%s/nvml", cluster.dir);
    cleanup_free char *source = xasprintf("nvml:%s", nvml);
    cleanup_free char *kubeconfig = kubeconfig_of(program);
    const char *argv[PROGRAM_ARGS] = {
        "env",         script, path,           "--listen", "127.0.0.1",    "--port", "0",
        "--node-name", NODE,   "--kubeconfig", kubeconfig, "--gpu-source", source};
    program_args(argv, program_args(argv, 13, first), more);
    cluster_add_program(program, argv);
}

void node_start_plugin(const char *const *more)
{
    cleanup_free char *state = temp_path(cluster.dir, "state.json");
    hear();
    start_daemon(PLUGIN,
                 ARGV("--plugin-dir", NODE_PLUGINS, "--podresources-socket",
                      NODE_PODRESOURCES, "--state-file", state, "--reconcile-interval",
                      "2s", "--sample-interval", "1s"),
                 more);
}

static void start_agent(void)
{
    start_daemon(
        AGENT,
        ARGV("--podresources-socket", NODE_PODRESOURCES, "--pods-interval", "1s"),
        ARGV(NULL));
}

static bool plugin_says(const char *path, struct buf *reply)
{
    struct peer health;
    if (node.pods)
        return cluster_pod_answers(PLUGIN, PLUGIN_PORT, path, reply);
    unsigned port = plugin_port();
    if (!port)
        return false;
    peer_init(&health, port);
    unsigned status = peer_call(&health, "GET", path, NULL, reply);
    peer_fini(&health);
    return status == 200;
}

double node_metric(const char *name)
{
    cleanup_buf struct buf reply = {0};
    cleanup_free char *line = xasprintf("\ngpushare_plugin_%s ", name);
    const char *at = plugin_says("/metrics", &reply) ? strstr(reply.p, line) : NULL;
    return at ? strtod(at + strlen(line), NULL) : -1;
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
    cleanup_free char *no = temp_path(cluster.dir, "no-containers");
    cleanup_free char *yes = temp_path(cluster.dir, "containers");
    struct err err = {0};
    if (access(no, F_OK) == 0 || access(yes, F_OK) == 0)
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

START_TEST(this_machine_runs_no_containers)
{
    node_say(cell_why_not());
}
END_TEST

int node_run(const char *name, const TTest *const *tests, size_t n,
             const char *const *args)
{
    const TTest *const none[] = {this_machine_runs_no_containers};
    if (cell_why_not())
        return lib_run(name, none, 1, 10);
    cluster_keep_nodes();
    return cluster_run(name, tests, n, 400, args);
}

void node_daemons_are_pods(void)
{
    node.pods = true;
}

static int allocatable(const char *resource)
{
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", "/api/v1/nodes/" NODE, NULL);
    const char *n =
        json_string_value(json_object_get(lib_at(j, "status.allocatable"), resource));
    return n ? atoi(n) : 0;
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

static bool is_known(void)
{
    cleanup_json json_t *n = extender_inspect(&cluster.extender, NODE);
    return strcmp(lib_str(n, "source"), "scv") == 0 &&
           json_integer_value(lib_at(n, "totalGPU")) == NODE_UNITS;
}

void node_wait_well(void)
{
    real_wait_ready();
    extender_wait_answers(&cluster.extender);
    lib_wait(node_metric("registered{resource=\"aliyun.com/gpu-mem\"}") == 1 &&
             node_metric("registered{resource=\"aliyun.com/gpu-count\"}") == 1);
    lib_wait(node_allocatable() == NODE_UNITS &&
             allocatable("aliyun.com/gpu-count") == NODE_CARDS);
    lib_wait(is_known());
}

static bool nothing_is_held(void)
{
    cleanup_json json_t *held = look_held();
    return held && json_object_size(held) == 0;
}

bool node_up(void)
{
    if (!node_decide("gpushare=true"))
        return false;
    free(node_write_cards());
    if (!cluster_runs("kubelet"))
        cluster_start("kubelet");
    if (!cluster_runs(AGENT))
        start_agent();
    node_start_plugin(ARGV(NULL));
    node_wait_well();
    lib_wait(nothing_is_held());
    return true;
}

void node_kill(const char *program)
{
    cluster_stop(program, "KILL");
    if (strcmp(program, PLUGIN) == 0)
        hear();
    cluster_start(program);
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
    {"split", "\"aliyun.com/gpu-count\":\"2\"", {{"gpu-mem", 4, APP}}},
    {"whole", "", {{"gpu-count", 1, APP}}},
};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    ck_abort_msg("there are no pods of kind %s", name);
    return NULL;
}

static void add_part(struct buf *out, size_t i, const struct part *p)
{
    static const char *const more[] = {
        [APP] = "",
        [INIT] = ",\"args\":[\"once\"]",
        [SIDECAR] = ",\"restartPolicy\":\"Always\"",
    };
    buf_printf(out,
               "%s{\"name\":\"%c\",\"image\":\"" NODE_GUEST
               "\",\"imagePullPolicy\":\"Never\"%s",
               out->n ? "," : "", (int)('c' + i), more[p->role]);
    if (p->n)
        buf_printf(out, ",\"resources\":{\"limits\":{\"aliyun.com/%s\":\"%d\"}}",
                   p->resource, p->n);
    buf_addc(out, '}');
}

char *node_spec_of(const char *name)
{
    const struct kind *kind = find_kind(name);
    cleanup_buf struct buf apps = {0}, inits = {0};
    buf_adds(&inits, "");
    for (size_t i = 0; i < ARRAY_LEN(kind->parts) && kind->parts[i].resource; i++)
        add_part(kind->parts[i].role == APP ? &apps : &inits, i, &kind->parts[i]);
    return xasprintf("\"containers\":[%s],\"initContainers\":[%s],"
                     "\"automountServiceAccountToken\":false,"
                     "\"enableServiceLinks\":false,\"terminationGracePeriodSeconds\":5",
                     apps.p, inits.p);
}

void node_create(const char *kind, const char *name)
{
    cleanup_free char *spec = node_spec_of(kind);
    cluster_create(CLUSTER_PODS,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":"
                   "\"%s\",\"labels\":{%s}},\"spec\":{%s}}",
                   name, find_kind(kind)->labels, spec);
}

/* The kubelet reads every file, also a partial one, unless its name begins with a dot. */
void node_create_static(const char *kind, const char *name)
{
    cleanup_free char *spec = node_spec_of(kind);
    cleanup_free char *dir = temp_path(cell_dir(), CELL_STATIC);
    cleanup_free char *hidden = xasprintf(".%s", name);
    cleanup_free char *from = temp_path(dir, hidden);
    cleanup_free char *file = xasprintf("%s.json", name);
    cleanup_free char *to = temp_path(dir, file);
    cleanup_free char *text =
        xasprintf("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":"
                  "\"%s\",\"namespace\":\"default\",\"labels\":{%s}},\"spec\":{%s}}",
                  name, find_kind(kind)->labels, spec);
    temp_write(dir, hidden, text);
    ck_assert_int_eq(rename(from, to), 0);
}

void node_remove_static(const char *name)
{
    cleanup_free char *dir = temp_path(cell_dir(), CELL_STATIC);
    cleanup_free char *file = xasprintf("%s.json", name);
    temp_remove(dir, file);
}

/* -- controllers -- */

#define APPS "/apis/apps/v1/namespaces/default/"

/* "Deployment" is in the collection "deployments". New. */
static char *collection_of(const char *controller)
{
    char *path = xasprintf(APPS "%ss", controller);
    for (char *c = path + strlen(APPS); *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
    return path;
}

void node_create_many(const char *controller, const char *name, const char *kind, int n)
{
    cleanup_free char *path = collection_of(controller), *spec = node_spec_of(kind);
    cluster_create(
        path,
        "{\"apiVersion\":\"apps/v1\",\"kind\":\"%s\",\"metadata\":{\"name\":\"%s\"},"
        "\"spec\":{\"replicas\":%d,\"selector\":{\"matchLabels\":{\"app\":\"%s\"}},"
        "\"template\":{\"metadata\":{\"labels\":{\"app\":\"%s\"}},\"spec\":{%s}}}}",
        controller, name, n, name, name, spec);
}

void node_scale(const char *controller, const char *name, int n)
{
    cleanup_free char *all = collection_of(controller);
    cleanup_free char *path = xasprintf("%s/%s", all, name);
    cleanup_free char *patch = xasprintf("{\"spec\":{\"replicas\":%d}}", n);
    json_decref(peer_json(&cluster.api, "PATCH", path, patch));
}

static bool all_run(int n)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    size_t i;
    int alive = 0;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
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
    int64_t end = lib_now_ms() + 2 * LIB_WAIT_MS;
    while (!all_run(n)) {
        ck_assert_msg(lib_now_ms() < end, "there are not %d pods that run", n);
        lib_pause();
    }
}
