/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/node.h"

/*
 * Real containers that take more memory than they were promised: scv-agent finds the pod of each
 * process by its cgroup and acts, and libgpushare-limit.so refuses the memory in the container.
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
    char name[16], uid[64];
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
        cleanup_free char *cgroup = xasprintf("/proc/%s/cgroup", d->d_name);
        cleanup_free char *command = xasprintf("/proc/%s/cmdline", d->d_name);
        if (atoi(d->d_name) > 0 && file_contains(cgroup, uid) &&
            file_contains(command, "/guest") && !file_contains(command, "pause"))
            found = atoi(d->d_name);
    }
    closedir(proc);
    return found;
}

static bool lives(int pid)
{
    cleanup_free char *path = xasprintf("/proc/%d/stat", pid);
    return access(path, F_OK) == 0;
}

/* Writes what NVML shows: the living processes of the pods, and this test, which is outside
 * Kubernetes, on the last card. */
static void write_processes(void)
{
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "driver 535.129.03\ncuda 12020\n");
    for (int i = 0; i < NODE_CARDS; i++) {
        cleanup_buf struct buf list = {0};
        long long used = 0, total = (long long)node_cards[i].units << 30;
        if (i == NODE_CARDS - 1) {
            used = 1ll << 30;
            buf_printf(&list, "%d:%lld", (int)getpid(), used);
        }
        for (struct use *u = uses; u < uses + PODS; u++) {
            if (u->pid && !lives(u->pid))
                u->pid = 0;
            if (!u->pid || u->card != i)
                continue;
            long long bytes = (u->over ? OVER_MIB : USED_MIB) * (1ll << 20);
            buf_printf(&list, "%s%d:%lld", list.n ? "," : "", u->pid, bytes);
            used += bytes;
        }
        ck_assert_int_le(used, total);
        buf_printf(
            &text,
            "card uuid=%s;name=Tesla T4;bus=%02x;minor=%d;total=%lld;free=%lld;used=%lld;"
            "reserved=0;util=0;temp=30;events=15;processes=%s\n",
            node_cards[i].uuid, 0x3b + i, i, total, total - used, used,
            list.n ? list.p : "");
    }
    cleanup_free char *from = temp_path(cluster.dir, "nvml.next");
    cleanup_free char *to = temp_path(cluster.dir, "nvml");
    temp_write(cluster.dir, "nvml.next", text.p);
    ck_assert_int_eq(rename(from, to), 0);
}

static void create_pods(int n)
{
    memset(uses, 0, sizeof uses);
    for (int i = 0; i < n; i++) {
        cleanup_free char *spec = node_spec_of("equal");
        snprintf(uses[i].name, sizeof uses[i].name, "p%02d", i);
        cluster_create(
            CLUSTER_PODS,
            "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
            "\"labels\":{\"number\":\"%d\"}},\"spec\":{%s}}",
            uses[i].name, i, spec);
    }
    for (int i = 0; i < n; i++) {
        struct use *u = &uses[i];
        cluster_wait_running(u->name);
        cleanup_json json_t *pod = cluster_pod(u->name);
        snprintf(u->uid, sizeof u->uid, "%s", lib_str(pod, "metadata.uid"));
        u->card = atoi(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"));
        u->over = i % OVER_EVERY == 0;
        lib_wait((u->pid = find_process(u->uid)) != 0);
    }
}

/* -- what happened to a pod -- */

static size_t events(const char *reason, const char *pod)
{
    cleanup_free char *selector =
        xasprintf("reason=%s,involvedObject.name=%s", reason, pod);
    return cluster_events(selector, "");
}

static int restarts(const json_t *pod)
{
    return (int)json_integer_value(
        lib_at(pod, "status.containerStatuses.0.restartCount"));
}

static void check_untouched(const struct use *u)
{
    cleanup_json json_t *pod = cluster_pod(u->name);
    ck_assert_str_eq(lib_str(pod, "status.phase"), "Running");
    ck_assert_str_eq(lib_str(pod, "metadata.uid"), u->uid);
    ck_assert_str_eq(lib_str(pod, "metadata.deletionTimestamp"), "");
    ck_assert_int_eq(restarts(pod), 0);
}

/* The use of the pod on its card in the Scv, in MiB; -1: none. */
static long long published(const char *name)
{
    cleanup_json json_t *scv =
        peer_json(&cluster.api, "GET", "/apis/core.run-linux.com/v1/scvs/" NODE, NULL);
    size_t i;
    json_t *pod;
    json_array_foreach(lib_at(scv, "status.podList"), i, pod)
    {
        const json_t *usage = json_array_get(json_object_get(pod, "usage"), 0);
        const json_t *used = json_object_get(usage, "usedMemory");
        if (strcmp(lib_str(pod, "name"), name) == 0 && used)
            return json_integer_value(used);
    }
    return -1;
}

static void start_agent_that(const char *acts)
{
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/rbac-overuse.yaml.example")));
    cluster_stop("scv-agent", "KILL");
    cluster_start_with("scv-agent", ARGV("--on-overuse", acts, "--overuse-grace", "3s",
                                         "--overuse-tolerance", "64Mi",
                                         "--overuse-always", "--refresh-interval", "1s"));
}

/* -- tests -- */

START_TEST(pods_above_their_promise_are_evicted_and_no_others)
{
    const struct use *guarded = &uses[0];
    int64_t begun;
    if (!node_up())
        return;
    create_pods(PODS);
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
END_TEST

static bool were_restarted(int n)
{
    bool all = true;
    for (int i = 0; i < n; i++) {
        cleanup_json json_t *pod = cluster_pod(uses[i].name);
        all &= !uses[i].over || restarts(pod) > 0;
    }
    return all;
}

START_TEST(processes_above_the_promise_are_killed_and_no_others)
{
    enum { FEW = 8 };
    if (!node_up())
        return;
    create_pods(FEW);
    write_processes();
    start_agent_that("kill");
    lib_wait((write_processes(), were_restarted(FEW)));
    for (const struct use *u = uses; u < uses + FEW; u++) {
        if (u->over)
            lib_wait(events("GPUOveruseKilled", u->name) > 0);
        else
            check_untouched(u);
    }
    cluster_delete_pods();
}
END_TEST

/* Starts a CUDA program of an image in a pod of 2 units. */
static void create_program(const char *name, const char *image, const char *isolation,
                           const char *mib)
{
    cluster_create(
        CLUSTER_PODS,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"annotations\":{\"gpushare/isolation\":\"%s\"}},\"spec\":{"
        "\"restartPolicy\":\"Never\",\"automountServiceAccountToken\":false,"
        "\"enableServiceLinks\":false,\"containers\":[{\"name\":\"c\",\"image\":"
        "\"%s\",\"imagePullPolicy\":\"Never\",\"args\":[\"more\",\"dlsym\",\"%s\"],"
        "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"2\"}}}]}}",
        name, isolation, image, mib);
}

static bool has_exited(const char *name, int *status)
{
    cleanup_json json_t *pod = cluster_pod(name);
    const json_t *ended = lib_at(pod, "status.containerStatuses.0.state.terminated");
    *status = (int)json_integer_value(json_object_get(ended, "exitCode"));
    return ended != NULL;
}

/* The exit status of the pod's container. */
static int wait_exit(const char *name)
{
    int status;
    lib_wait(has_exited(name, &status));
    return status;
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

START_TEST(a_program_is_limited_in_its_container)
{
    cleanup_free char *dir = temp_path(cell_dir(), "limit");
    cleanup_free char *library = program_path("libgpushare-limit.so");
    cleanup_free char *path = realpath(library, NULL);
    if (!node_up())
        return;
    node_stop_plugin();
    node_start_plugin(ARGV("--limit-dir", dir, "--limit-library", path,
                           "--device-list-strategy", "envvar"));
    node_wait_well();
    for (size_t i = 0; i < ARRAY_LEN(limited); i++) {
        const struct limited *l = &limited[i];
        cleanup_free char *fits = xasprintf("fits-%zu", i),
                          *more = xasprintf("more-%zu", i),
                          *image = xasprintf("localhost/%s:1", l->image);
        create_program(fits, image, l->isolation, "2000");
        create_program(more, image, l->isolation, "2100");
        int status = wait_exit(fits);
        ck_assert_msg(status == l->fits, "%s, %s: %d", l->image, l->isolation, status);
        status = wait_exit(more);
        ck_assert_msg(status == l->more, "%s, %s: %d", l->image, l->isolation, status);
    }
    ck_assert(node_metric("limited_containers_total") == 2 * ARRAY_LEN(limited));
    ck_assert(node_metric("limit_failures_total") == 0);
    cluster_delete_pods();
}
END_TEST

NODE_MAIN("node-isolation", pods_above_their_promise_are_evicted_and_no_others,
          processes_above_the_promise_are_killed_and_no_others,
          a_program_is_limited_in_its_container)
