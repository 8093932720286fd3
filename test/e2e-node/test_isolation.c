/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>

#include "base/file.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "lib/backup.h"

/*
 * Real containers that take more memory than they were promised: scv-agent finds the pod of each
 * process by its cgroup and acts, and libgpushare-limit.so refuses the memory in the container. The memory of a pod that
 * the API server has forgotten is reported.
 */

enum {
    PODS = 30,
    OVER_EVERY = 6,
    USED_MIB = 512,
    OVER_MIB = 3072
}; /* of 2048 promised */

/* -- processes on the cards -- */

/* A pod and what its process uses. `pid` 0: it has ended. */
struct use {
    const char *name, *uid;
    int card;
    int pid;
    bool over;
};
static struct use uses[PODS];

static bool file_contains(const char *path, const char *text)
{
    cleanup_buf struct buf b = {0};
    return file_read(path, 1 << 20, &b, NULL) == 0 && b.n &&
           memmem(b.p, b.n, text, strlen(text));
}

/* The process of the container that is not the one of the sandbox, by the pod's UID in its cgroup;
 * 0: none. */
static int find_process(const char *uid)
{
    DIR *proc = opendir("/proc");
    struct dirent *d;
    int found = 0;
    while (!found && (d = readdir(proc))) {
        char *command = lib_fmt("/proc/%s/cmdline", d->d_name);
        if (atoi(d->d_name) > 0 &&
            file_contains(lib_fmt("/proc/%s/cgroup", d->d_name), uid) &&
            file_contains(command, "/guest") && !file_contains(command, "pause"))
            found = atoi(d->d_name);
    }
    closedir(proc);
    return found;
}

static bool lives(int pid)
{
    return access(lib_fmt("/proc/%d/stat", pid), F_OK) == 0;
}

static void add_process(struct node_use *card, int pid, long long mib)
{
    card->processes = lib_fmt("%s%s%d:%lld", card->processes ? card->processes : "",
                              card->bytes ? "," : "", pid, mib << 20);
    card->bytes += mib << 20;
}

/* Writes what NVML shows: the living processes of the pods, and this test, which is outside
 * Kubernetes, on the last card. */
static void write_processes(void)
{
    struct node_use cards[NODE_CARDS] = {{"", 0}};
    add_process(&cards[NODE_CARDS - 1], (int)getpid(), 1 << 10);
    for (struct use *u = uses; u < uses + PODS; u++)
        if (u->pid && (u->pid = lives(u->pid) ? u->pid : 0))
            add_process(&cards[u->card], u->pid, u->over ? OVER_MIB : USED_MIB);
    node_write_cards(cards);
}

static void create_pods(int n)
{
    memset(uses, 0, sizeof uses);
    for (int i = 0; i < n; i++) {
        uses[i].name = lib_fmt("p%02d", i);
        node_create("equal", uses[i].name);
    }
    for (int i = 0; i < n; i++) {
        struct use *u = &uses[i];
        cluster_wait_running(u->name);
        json_t *pod = cluster_pod(u->name);
        u->uid = lib_str(pod, "metadata.uid");
        u->card = atoi(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"));
        u->over = i % OVER_EVERY == 0;
        lib_wait((u->pid = find_process(u->uid)) != 0);
    }
}

/* -- what happened to a pod -- */

static size_t events(const char *reason, const char *pod)
{
    return cluster_events(lib_fmt("reason=%s,involvedObject.name=%s", reason, pod), "");
}

static int restarts(const json_t *pod)
{
    return (int)lib_int(pod, "status.containerStatuses.0.restartCount");
}

static void check_untouched(const struct use *u)
{
    json_t *pod = cluster_pod(u->name);
    ck_assert_at(pod, "status.phase", "Running");
    ck_assert_at(pod, "metadata.uid", u->uid);
    ck_assert_at(pod, "metadata.deletionTimestamp", "");
    ck_assert_int_eq(restarts(pod), 0);
}

/* The use of the pod on its card in the Scv, in MiB. */
static long long published(const char *name)
{
    const json_t *scv = peer_get(&cluster.api, "/apis/core.run-linux.com/v1/scvs/" NODE);
    return lib_int(lib_find(lib_at(scv, "status.podList"), "name", name),
                   "usage.0.usedMemory");
}

static void start_agent_that(const char *acts)
{
    cluster_kubectl("apply", "-f", "manifests/rbac-overuse.yaml.example");
    cluster_stop("scv-agent", "KILL");
    cluster_start_with("scv-agent", ARGV("--on-overuse", acts, "--overuse-grace", "3s",
                                         "--overuse-tolerance", "64Mi",
                                         "--overuse-always", "--refresh-interval", "1s"));
}

/* -- tests -- */

TEST(pods_above_their_promise_are_evicted_and_no_others)
{
    const struct use *guarded = &uses[0];
    int64_t begun;
    if (!node_up())
        return;
    create_pods(PODS);
    cluster_kubectl("label", "pod", guarded->name, "number=0");
    cluster_create(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "{\"apiVersion\":\"policy/v1\",\"kind\":\"PodDisruptionBudget\",\"metadata\":"
        "{\"name\":\"guard\"},\"spec\":{\"minAvailable\":1,\"selector\":"
        "{\"matchLabels\":{\"number\":\"0\"}}}}");
    write_processes();
    start_agent_that("evict");
    begun = lib_now_ms();
    for (const struct use *u = uses; u < uses + PODS; u++)
        if (u->over && u != guarded)
            lib_wait((write_processes(), cluster_is_gone(u->name)));
    cluster_report("pods above their promise are reported, evicted and gone",
                   lib_now_ms() - begun);
    for (const struct use *u = uses; u < uses + PODS; u++) {
        if (!u->over || u == guarded)
            check_untouched(u);
        bool evicted = u->over && u != guarded;
        if (u->over)
            lib_wait(events("GPUOveruse", u->name) > 0);
        if (evicted)
            lib_wait(events("GPUOveruseEvicted", u->name) > 0);
        ck_assert_msg((events("GPUOveruse", u->name) > 0) == u->over, "pod %s", u->name);
        ck_assert_msg((events("GPUOveruseEvicted", u->name) > 0) == evicted, "pod %s",
                      u->name);
    }
    lib_wait(published("p01") == USED_MIB && published(guarded->name) == OVER_MIB);
    cluster_delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/guard");
    cluster_delete_pods();
}

static bool were_restarted(int n)
{
    for (int i = 0; i < n; i++)
        if (uses[i].over && restarts(cluster_pod(uses[i].name)) == 0)
            return false;
    return true;
}

TEST(processes_above_the_promise_are_killed_and_no_others)
{
    enum { FEW = 8 };
    if (!node_up())
        return;
    create_pods(FEW);
    start_agent_that("kill"); /* the agent before would evict p00, whose name it knows */
    lib_wait((write_processes(), were_restarted(FEW)));
    for (const struct use *u = uses; u < uses + FEW; u++) {
        if (u->over)
            lib_wait(events("GPUOveruseKilled", u->name) > 0);
        else
            check_untouched(u);
    }
    cluster_delete_pods();
}

static bool has_exited(const char *name, int *status)
{
    const json_t *ended =
        lib_at(cluster_pod(name), "status.containerStatuses.0.state.terminated");
    *status = (int)lib_int(ended, "exitCode");
    return ended != NULL;
}

/* Programs of images, and how they exit. The last two images preload a library of their own,
 * which adds 40 to the exit status: with `limit` it is not loaded. */
static const struct limited {
    const char *image, *isolation;
    int fits, more;
} limited[] = {
    {"cuda-guest", "limit", 0, 2}, /* CUDA_ERROR_OUT_OF_MEMORY */
    {"cuda-guest-musl", "limit", 0, 2},
    {"cuda-guest-preload", "limit", 0, 2},
    {"cuda-guest-preload", "limit-env", 40, 42},
    {"cuda-guest-env", "limit", 0, 2},
    {"cuda-guest-env", "limit-file", 40, 42},
};

/* Runs the CUDA program in a pod of 2 units. */
static void check_exit(const char *name, const struct limited *l, const char *mib,
                       int wanted)
{
    int status;
    cluster_create(
        CLUSTER_PODS,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"annotations\":{\"gpushare/isolation\":\"%s\"}},\"spec\":{"
        "\"restartPolicy\":\"Never\",\"automountServiceAccountToken\":false,"
        "\"enableServiceLinks\":false,\"containers\":[{\"name\":\"c\",\"image\":"
        "\"localhost/%s:1\",\"imagePullPolicy\":\"Never\",\"args\":[\"more\",\"dlsym\","
        "\"%s\"],\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"2\"}}}]}}",
        name, l->isolation, l->image, mib);
    lib_wait(has_exited(name, &status));
    ck_assert_msg(status == wanted, "%s, %s: %d", l->image, l->isolation, status);
}

TEST(a_program_is_limited_in_its_container)
{
    if (!node_up())
        return;
    node_stop_plugin();
    node_start_plugin(ARGV("--limit-dir", lib_fmt("%s/limit", cell_dir()),
                           "--limit-library", node_built("libgpushare-limit.so"),
                           "--device-list-strategy", "envvar"));
    node_wait_well();
    array_indices(i, limited) {
        const struct limited *l = &limited[i];
        check_exit(lib_fmt("fits-%zu", i), l, "2000", l->fits);
        check_exit(lib_fmt("more-%zu", i), l, "2100", l->more);
    }
    ck_assert(node_metric("limited_containers_total") == 2 * ARRAY_LEN(limited));
    ck_assert(node_metric("limit_failures_total") == 0);
    cluster_delete_pods();
}

/* -- a pod that the API server has forgotten -- */

static int64_t external_use(void)
{
    return extender_metric(&cluster.extender, "gpushare_drift{kind=\"external-use\"}");
}

/* It uses what it was promised. */
static void write_process(const struct use *u)
{
    struct node_use cards[NODE_CARDS] = {{"", 0}};
    add_process(&cards[u->card], u->pid, 2048);
    node_write_cards(cards);
}

/* etcd is restored from a snapshot that lacks the pod. The kubelet notices it when it restarts;
 * until then the container runs, and what it uses is nobody's. */
TEST(a_pod_that_a_restore_took_away_is_reported_while_it_runs)
{
    const struct use *u = uses;
    if (!node_up())
        return;
    backup_save();
    create_pods(1);
    write_process(u);
    lib_wait(lib_int(extender_node(&cluster.extender, NODE),
                     lib_fmt("devs.%d.usedMiB", u->card)) == 2048);
    ck_assert_int_eq(external_use(), 0);
    int64_t begun = lib_now_ms();
    backup_restore();
    ck_assert(cluster_is_gone(u->name));
    lib_wait(external_use() == 1);
    cluster_report("until a pod that was restored away is reported",
                   lib_now_ms() - begun);
    node_check(NULL, "GPU0: processes outside Kubernetes use 1024 MiB more");
    ck_assert(lives(u->pid));
    ck_assert_int_eq(external_use(), 1);
    node_kill("kubelet");
    node_wait_well();
    lib_wait(!lives(u->pid));
    node_write_cards(NULL);
    lib_wait(external_use() == 0);
    node_create("equal", "again");
    cluster_wait_running("again");
    ck_assert_uint_eq(look_check(), 1);
    oracle_agrees(&cluster.api, &cluster.extender);
    look_finish();
}

NODE_MAIN
