/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/node.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/cell.h"
#include "e2e-node/look.h"
#include "e2e-node/played.h"
#include "e2e-node/real.h"

#define PLUGIN "gpushare-device-plugin"
#define AGENT  "scv-agent"

enum { ARGS = 40, LOG_MAX = 64 << 20, PLUGIN_PORT = 12348 };

const struct node_card node_cards[NODE_CARDS] = {
    {"GPU-11111111-0a0a-4b4b-8c8c-000000000001", 8},
    {"GPU-22222222-0a0a-4b4b-8c8c-000000000002", 24},
    {"GPU-33333333-0a0a-4b4b-8c8c-000000000003", 16},
    {"GPU-44444444-0a0a-4b4b-8c8c-000000000004", 48},
};

/* State of this test process. */
static struct {
    bool real, pods;
    size_t log_start; /* offset in the plugin's log at its last start */
} node;

bool node_is_real(void)
{
    return node.real;
}

const char *node_plugin_dir(void)
{
    return node.real ? "/var/lib/kubelet/device-plugins" : played_plugin_dir();
}

const char *node_podresources(void)
{
    return node.real ? "/var/lib/kubelet/pod-resources/kubelet.sock"
                     : played_podresources();
}

char *node_log(const char *pod, const char *uid, const char *container)
{
    return node.real ? real_log(pod, uid, container) : played_log(uid, container);
}

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
    const char *argv[ARGS] = {
        "env",         script, path,           "--listen", "127.0.0.1",    "--port", "0",
        "--node-name", NODE,   "--kubeconfig", kubeconfig, "--gpu-source", source};
    size_t n = 13;
    while (*first)
        argv[n++] = *first++;
    for (; *more; more++) {
        ck_assert_uint_lt(n, ARGS - 1);
        argv[n++] = *more;
    }
    cluster_add_program(program, argv);
}

void node_start_plugin(const char *const *more)
{
    cleanup_free char *state = temp_path(cluster.dir, "state.json");
    hear();
    start_daemon(PLUGIN,
                 ARGV("--plugin-dir", node_plugin_dir(), "--podresources-socket",
                      node_podresources(), "--state-file", state, "--reconcile-interval",
                      "2s", "--sample-interval", "1s"),
                 more);
}

static void start_agent(void)
{
    start_daemon(
        AGENT,
        ARGV("--podresources-socket", node_podresources(), "--pods-interval", "1s"),
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

void node_tell_latency(void)
{
    static const char *const calls[] = {"GetPreferredAllocation", "Allocate"};
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        cleanup_free char *sum =
            xasprintf("request_duration_seconds_sum{method=\"%s\"}", calls[i]);
        cleanup_free char *n =
            xasprintf("request_duration_seconds_count{method=\"%s\"}", calls[i]);
        cleanup_free char *max =
            xasprintf("request_duration_max_seconds{method=\"%s\"}", calls[i]);
        double count = node_metric(n);
        ck_assert_msg(count >= 0, "the plugin has no metric %s", n);
        if (count > 0)
            printf("measured: %s: %.0f calls, %.1f ms on average, %.0f ms at most\n",
                   calls[i], count, node_metric(sum) / count * 1e3,
                   node_metric(max) * 1e3);
    }
    fflush(stdout);
}

/* -- the node -- */

void node_say(const char *instead, const char *why)
{
    const char *wish = getenv("E2E_NODE");
    ck_assert_msg(!wish || strcmp(wish, "real") != 0,
                  "E2E_NODE=real, and no containers here: %s", why);
    printf("measured: no containers here, so %s: %s\n", instead, why);
    fflush(stdout);
}

/* A file records the kind of kubelet for the following tests. */
bool node_decide(const char *labels, const char *instead)
{
    cleanup_free char *path = temp_path(cluster.dir, "no-containers");
    cleanup_free char *yes = temp_path(cluster.dir, "containers");
    struct err err = {0};
    if (access(path, F_OK) == 0 || access(yes, F_OK) == 0) {
        node.real = access(yes, F_OK) == 0;
        return node.real;
    }
    int64_t begun = lib_now_ms();
    const char *why = cell_why_not();
    if (!why && real_start(labels, &err)) {
        why = err.msg;
        real_stop();
        cluster_delete_pods();
    }
    if (why)
        node_say(instead, why);
    else
        cluster_report("from nothing to a container on a real kubelet",
                       lib_now_ms() - begun);
    temp_write(cluster.dir, why ? "no-containers" : "containers", why ? why : "");
    node.real = !why;
    return node.real;
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
    if (node.real)
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

void node_up(void)
{
    node_decide("gpushare=true", "the fake kubelet of test/lib is used");
    free(node_write_cards());
    if (!node.real)
        played_start();
    else if (!cluster_runs("kubelet"))
        cluster_start("kubelet");
    if (!cluster_runs(AGENT) || !node.real)
        start_agent();
    node_start_plugin(ARGV(NULL));
    node_wait_well();
    lib_wait(nothing_is_held());
}

void node_down(void)
{
    cluster_delete_pods();
    if (!node.real)
        played_stop();
}

void node_kill(const char *program)
{
    if (!node.real && strcmp(program, "kubelet") == 0) {
        played_restart();
        return;
    }
    cluster_stop(program, "KILL");
    if (strcmp(program, PLUGIN) == 0)
        hear();
    cluster_start(program);
}
