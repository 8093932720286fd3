/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/inside.h"
#include "e2e-node/look.h"
#include "e2e-node/other_plugin.h"
#include "e2e-node/real.h"
#include "lib/attempt.h"

/*
 * Pods of HAMi that run when our device plugin takes nvidia.com/gpu over, as docs/install.md says it.
 * This process is HAMi's scheduler and its device plugin. GAP_S: the seconds between the two plugins
 * (330: the kubelet forgets the first after five minutes).
 */

#define NVIDIA_GPU "nvidia.com/gpu"
#define CRASH      "crash" /* its container is killed */

enum { SPLIT = 10, SLOTS = 32, PODS = 3, GAP_S = 5 };

static size_t give(const char *name, struct dp_entry envs[8])
{
    const char *devices =
        lib_annotation(cluster_pod(name), "hami.io/vgpu-devices-allocated");
    envs[0] =
        (struct dp_entry){SPAN("NVIDIA_VISIBLE_DEVICES"),
                          span_of(lib_fmt("%.*s", (int)strcspn(devices, ","), devices))};
    envs[1] = (struct dp_entry){SPAN("CUDA_DEVICE_MEMORY_LIMIT_0"), SPAN("3000m")};
    return 2;
}

static struct other_plugin hami = {
    .resource = NVIDIA_GPU, .socket = "nvidia-gpu.sock", .give = give};

/* Bound by HAMi's scheduler to card i. Any id of the kubelet may be given for that. */
static const char *run_as_hami(const char *name, int card)
{
    const char *text = node_pod("none", name);
    json_t *pod = lib_parse(text, strlen(text)), *spec = lib_at(pod, "spec");
    json_object_set_new(
        lib_at(pod, "metadata"), "annotations",
        json_pack("{s:s,s:o}", "hami.io/vgpu-node", NODE,
                  "hami.io/vgpu-devices-allocated",
                  json_sprintf("%s,NVIDIA-Tesla T4,3000,0:;", node_cards[card].uuid)));
    json_object_update_new(
        lib_at(spec, "containers.0.resources.limits"),
        json_pack("{s:s,s:s}", NVIDIA_GPU, "1", NVIDIA_GPU "mem", "3k"));
    json_object_set_new(spec, "nodeName", json_string(NODE));
    other_plugin_run(name, lib_text(pod, ""));
    return name;
}

static void set_dialect(const char *word)
{
    peer_do(&cluster.api, "PATCH", "/api/v1/nodes/" NODE,
            lib_fmt("{\"metadata\":{\"labels\":{\"gpushare/dialect\":%s}}}", word));
}

static const json_t *ids_of(const char *pod)
{
    const json_t *held;
    lib_wait((held = look_held()) && json_object_get(held, lib_fmt("%s/c", pod)));
    return json_object_get(held, lib_fmt("%s/c", pod));
}

static const char *card_of(const char *pod)
{
    const char *log;
    lib_wait((log = real_log(pod, lib_str(cluster_pod(pod), "metadata.uid"), "c")) !=
             NULL);
    return look_variable(log, "NVIDIA_VISIBLE_DEVICES");
}

static struct {
    const json_t *ids;
    const char *card;
} before[PODS];

static const char *name_of(int i)
{
    return i ? lib_fmt("hami-%d", i) : CRASH;
}

static json_int_t restarts_of(const char *pod)
{
    return lib_int(cluster_pod(pod), "status.containerStatuses.0.restartCount");
}

/* How many the kubelet has not refused. */
static int count_left(void)
{
    int n = 0;
    for (int i = 0; i < PODS; i++)
        n += strcmp(lib_str(cluster_pod(name_of(i)), "status.phase"), "Failed") != 0;
    return n;
}

/* The kubelet refuses a pod that it admits again before a plugin has registered: another one replaces
 * it. With ours in place, no id may be missing. */
static void check_same(bool restarted)
{
    for (int i = 0; i < PODS; i++) {
        json_t *pod;
        const char *phase;
        lib_wait((pod = cluster_pod(name_of(i)), phase = lib_str(pod, "status.phase"),
                  strcmp(phase, "Failed") == 0 ||
                      lib_at(pod, "status.containerStatuses.0.state.running") != NULL));
        if (strcmp(phase, "Failed") == 0) {
            const char *why = lib_str(pod, "status.message");
            ck_assert_msg(restarted && !strstr(why, "previously allocated devices"),
                          "%s has failed: %s", name_of(i), why);
            printf("measured: %s was refused: %s\n", name_of(i), why);
            continue;
        }
        ck_assert_int_eq(!i || restarted ? 0 : restarts_of(name_of(i)), 0);
        ck_assert(json_equal(ids_of(name_of(i)), before[i].ids));
        ck_assert_str_eq(card_of(name_of(i)), before[i].card);
    }
    ck_assert(node_metric("mismatches_total") <= 0);
}

static const char *container_of(const char *pod)
{
    return lib_str(cluster_pod(pod), "status.containerStatuses.0.containerID");
}

/* The kubelet and all containers end, and the kubelet starts. */
static void reboot(void)
{
    const char *was[PODS];
    struct err err;
    for (int i = 0; i < PODS; i++)
        was[i] = container_of(name_of(i));
    cluster_stop("kubelet", "KILL");
    const char *tasks = real_ctr(ARGV("tasks", "ls", "-q"), &err);
    for (struct span rest = span_of(tasks); rest.n;) {
        const struct span id = span_cut(&rest, '\n');
        real_ctr(ARGV("tasks", "kill", "--all", "--signal", "SIGKILL",
                      lib_fmt("%.*s", SPAN_ARG(id))),
                 &err);
    }
    cluster_start("kubelet");
    node_wait_well();
    for (int i = 0; i < PODS; i++)
        lib_wait(strcmp(lib_str(cluster_pod(name_of(i)), "status.phase"), "Failed") ==
                     0 ||
                 strcmp(container_of(name_of(i)), was[i]) != 0);
}

static void kill_container(void)
{
    json_int_t is = restarts_of(CRASH);
    inside_kill(CRASH);
    lib_wait(
        restarts_of(CRASH) > is ||
        *lib_str(cluster_pod(CRASH), "status.containerStatuses.0.state.waiting.reason"));
}

static bool begin(void)
{
    if (real_has_cdi()) /* older kubelets have no such field */
        real_configure("crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n");
    node_daemons_are_one(); /* a plugin beside scv-agent serves no dialect */
    if (!node_up())
        return false;
    attempt_without_policies(); /* this process writes what HAMi writes */
    node_stop_plugin();
    hami.ids = lib_own(json_array());
    for (int i = 0; i < NODE_CARDS * SPLIT; i++)
        json_array_append_new(
            hami.ids, json_sprintf("%s-%d", node_cards[i / SPLIT].uuid, i % SPLIT));
    other_plugin_start(&hami);
    for (int i = 0; i < PODS; i++) {
        run_as_hami(name_of(i), PODS - 1 - i);
        before[i].ids = lib_own(json_deep_copy(ids_of(name_of(i))));
        before[i].card = card_of(name_of(i));
        ck_assert_str_eq(before[i].card, node_cards[PODS - 1 - i].uuid);
    }
    set_dialect("\"hami\"");
    return true;
}

static void finish(void)
{
    set_dialect("null");
    cluster_delete_pods();
}

static double metric(const char *name)
{
    return node_metric(lib_fmt("%s{resource=\"" NVIDIA_GPU "\"}", name));
}

/* What the Scv says, which the extender reads. */
static bool dialect_is(const char *word)
{
    const json_t *scv = peer_get(&cluster.api, "/apis/core.run-linux.com/v1/scvs/" NODE);
    return strcmp(lib_str(scv, "status.dialect"), word) == 0;
}

TEST(pods_of_hami_run_on_while_the_plugins_change)
{
    if (!begin())
        return;
    /* Both run. */
    node_start_plugin(ARGV("--node-interval", "1s"));
    node_wait_well();
    lib_wait(metric("other_plugin") == 1 && dialect_is("unserved"));
    lib_wait(cluster_events("reason=GPUOtherPlugin", NVIDIA_GPU) == 1);
    ck_assert_int_eq(other_plugin_offers(NVIDIA_GPU), NODE_CARDS * SPLIT);
    run_as_hami("late", 0);
    check_same(false);
    /* HAMi's stops. */
    other_plugin_stop();
    lib_wait(metric("registered") == 1 && metric("other_plugin") == 0);
    lib_wait(dialect_is("hami"));
    lib_wait(other_plugin_offers(NVIDIA_GPU) == NODE_CARDS * SLOTS + PODS + 1);
    check_same(false);
    /* A container that starts again has what the first plugin gave it. */
    kill_container();
    check_same(false);
    /* An id leaves with its pod. */
    cluster_delete(CLUSTER_PODS "/late");
    lib_wait(other_plugin_offers(NVIDIA_GPU) == NODE_CARDS * SLOTS + PODS);
    node_kill("gpushare-device-plugin");
    lib_wait(metric("registered") == 1);
    lib_wait(other_plugin_offers(NVIDIA_GPU) == NODE_CARDS * SLOTS + PODS);
    kill_container();
    node_kill("kubelet");
    node_wait_well();
    lib_wait(metric("registered") == 1);
    check_same(true);
    lib_wait(other_plugin_offers(NVIDIA_GPU) == NODE_CARDS * SLOTS + count_left());
    ck_assert_int_ge(count_left(), PODS - 1);
    reboot();
    lib_wait(metric("registered") == 1);
    check_same(true);
    lib_wait(other_plugin_offers(NVIDIA_GPU) == NODE_CARDS * SLOTS + count_left());
    /* The way back. */
    set_dialect("\"none\"");
    lib_wait(other_plugin_offers(NVIDIA_GPU) == 0 && dialect_is(""));
    other_plugin_start(&hami);
    run_as_hami("back", 0);
    check_same(true);
    other_plugin_stop();
    finish();
}

/* A container cannot start until a plugin has its resource. */
TEST(pods_of_hami_wait_for_the_next_plugin)
{
    const char *gap = getenv("GAP_S");
    if (!begin())
        return;
    other_plugin_stop();
    lib_wait(other_plugin_offers(NVIDIA_GPU) == 0);
    sleep(gap ? (unsigned)atoi(gap) : GAP_S);
    inside_kill(CRASH);
    node_start_plugin(NULL);
    node_wait_well();
    lib_wait(metric("registered") == 1);
    check_same(false);
    lib_wait(other_plugin_offers(NVIDIA_GPU) == NODE_CARDS * SLOTS + PODS);
    finish();
}

NODE_MAIN
