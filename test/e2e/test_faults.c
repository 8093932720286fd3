/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/attempt.h"
#include "lib/burst.h"
#include "lib/cluster.h"
#include "lib/expect.h"

/*
 * Programs that stop, watches that miss events, pods that are deleted, and other clients
 * that bind. After each case, inspect agrees with the annotations, and new pods are
 * bound.
 */

#define PODS     CLUSTER_PODS
#define EXTENDER "gpushare-extender"

enum { ETCD_STILL_MS = 8000 };

static json_int_t total(const char *node)
{
    cleanup_json json_t *j = extender_inspect(&cluster.extender, node);
    return json_integer_value(lib_at(j, "totalGPU"));
}

/* -- programs that stop during a burst of 300 pods -- */

struct burst {
    void (*trouble)(void);
    int64_t begun;
};

static void add_pods_or_trouble(void *ctx, size_t i)
{
    struct burst *b = ctx;
    if (i == 0)
        burst_add_pods();
    else
        b->trouble();
}

static void burst_with(void (*trouble)(void), const char *what)
{
    struct burst b = {trouble, lib_now_ms()};
    burst_add_nodes();
    b.begun = lib_now_ms();
    lib_threads(2, add_pods_or_trouble, &b);
    burst_wait_bound(BURST_FIT);
    cluster_report(what, lib_now_ms() - b.begun);
    burst_check();
    cluster_settle();
}

static void kill_at(size_t bound, const char *program)
{
    while (burst_bound() < bound)
        lib_pause();
    cluster_stop(program, "KILL");
    cluster_start(program);
}

static void kill_the_extender(void)
{
    kill_at(60, EXTENDER);
    kill_at(180, EXTENDER);
}

START_TEST(an_extender_that_is_killed_in_a_burst)
{
    burst_with(kill_the_extender, "280 pods, and the extender is killed twice");
}

static void kill_the_api_server(void)
{
    kill_at(60, "kube-apiserver");
    kill_at(180, "kube-apiserver");
}

START_TEST(an_api_server_that_is_killed_in_a_burst)
{
    burst_with(kill_the_api_server, "280 pods, and kube-apiserver is killed twice");
}

/* Longer than the wait for the outcome of a Binding without an answer. etcd then
 * executes the requests in its queue, including abandoned Bindings. */
static void let_etcd_stand_still(void)
{
    pid_t etcd = cluster_pid("etcd");
    while (burst_bound() < 100)
        lib_pause();
    kill(etcd, SIGSTOP);
    int64_t until = lib_now_ms() + ETCD_STILL_MS;
    while (lib_now_ms() < until)
        lib_pause();
    kill(etcd, SIGCONT);
}

START_TEST(an_etcd_that_is_stopped_in_a_burst)
{
    burst_with(let_etcd_stand_still, "280 pods, and etcd stands still for 8 s");
    cleanup_json json_t *j =
        peer_json(&cluster.extender.observers, "GET", "/inspect", NULL);
    ck_assert_int_eq(json_integer_value(lib_at(j, "overcommits")), 0);
}

/* -- a watch across a compaction -- */

/* Runs a program of the control plane, or etcdctl. Returns its output, new. */
static char *etcdctl(const char *const *args)
{
    const char *argv[24] = {
        "sh", "-c",
        "PATH=$PATH:${XDG_CACHE_HOME:-$HOME/.cache}/gpushare/etcd/usr/"
        "bin; cd \"$0\" && exec etcdctl --cacert pki/etcd-ca.crt "
        "--cert pki/etcd-client.crt --key pki/etcd-client.key "
        "--endpoints https://127.0.0.1:$(head -1 run/etcd.port) \"$@\"",
        cluster.dir};
    struct program p;
    for (size_t n = 4; *args; n++, args++)
        argv[n] = *args;
    setenv("ETCDCTL_API", "3", 1);
    program_start(&p, getenv("HOME"), argv);
    ck_assert_msg(program_wait(&p) == 0, "etcdctl: %s", program_output(&p));
    char *said = xstrdup(program_output(&p));
    program_fini(&p);
    return said;
}

static void compact(void)
{
    char revision[32];
    cleanup_free char *status = etcdctl(ARGV("endpoint", "status", "-w", "json"));
    cleanup_json json_t *j = json_loads(status, 0, NULL);
    json_t *header = lib_at(json_array_get(j, 0), "Status.header.revision");
    snprintf(revision, sizeof revision, "%lld", (long long)json_integer_value(header));
    cleanup_free char *done = etcdctl(ARGV("compact", revision, "--physical"));
    ck_assert_contains(done, "compacted revision");
}

/* More than the buffers between the API server and a client hold. */
static void create_many(void)
{
    enum { MANY = 100, BYTES = 100000 };
    cleanup_free char *bytes = xcalloc(1, BYTES + 1);
    memset(bytes, 'x', BYTES);
    cleanup_free char *note = xasprintf(",\"annotations\":{\"large\":\"%s\"}", bytes);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "many-%d", i);
        cluster_create_pod(name, 1, note, SCHEDULER("nobody"));
    }
    for (int i = 0; i < MANY; i += 2) {
        cleanup_free char *path = xasprintf(PODS "/many-%d", i);
        cluster_delete(path);
    }
}

START_TEST(a_stopped_watch_whose_history_was_compacted)
{
    attempt_without_policies();
    cluster_add_node("n1", NULL, NULL, CARDS(16384, 16384));
    cluster_add_node("n2", NULL, NULL, CARDS(16384));
    cluster_create_pod("stays", 4, "", ON("n1"));
    cluster_wait_running("stays");
    cluster_create_pod("goes", 5, "", ON("n1"));
    cluster_wait_running("goes");
    cluster_listen();
    kill(cluster_pid(EXTENDER), SIGSTOP);
    create_many();
    cluster_delete(PODS "/goes");
    cluster_delete("/apis/core.run-linux.com/v1/scvs/n2");
    cluster_create_scv("n2", CARDS(8192));
    cluster_create_pod("by-hand", 3, "", ",\"nodeName\":\"n2\"");
    compact();
    cluster_stop("kube-apiserver", "KILL");
    cluster_start("kube-apiserver");
    lib_wait(peer_status(&cluster.api, "/readyz") == 200);
    kill(cluster_pid(EXTENDER), SIGCONT);
    int64_t begun = lib_now_ms();
    /* The pods are listed again in any case, because the lease was lost meanwhile. */
    lib_wait(cluster_logged("watch of nodes: HTTP 410: too old resource version"));
    lib_wait(cluster_logged("watch of scvs: HTTP 410: too old resource version"));
    lib_wait(total("n2") == 8 && extender_promised(&cluster.extender, "n2") == 3 &&
             cluster_knows_pending());
    cluster_report("until an extender that stood still has caught up",
                   lib_now_ms() - begun);
    cluster_settle();
}

/* -- pods deleted between filter and bind -- */

/* Calls bind directly. "": bound; otherwise the error. New. */
static char *bind_by_hand(const char *name, const char *uid, const char *node)
{
    cleanup_buf struct buf reply = {0};
    cleanup_free char *body =
        xasprintf("{\"PodName\":\"%s\",\"PodNamespace\":\"default\",\"PodUID\":\"%s\","
                  "\"Node\":\"%s\"}",
                  name, uid, node);
    unsigned status = peer_call(&cluster.extender.verbs, "POST",
                                "/gpushare-scheduler/bind", body, &reply);
    ck_assert_msg(status == 200, "bind: %u %s", status, reply.p);
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    return xstrdup(lib_str(j, "Error"));
}

enum { RACES = 40, RUNNERS = 8 };

struct race {
    const char *uid[RACES];
    atomic_int bound, gone;
};

/* Half of the threads bind, half delete. */
static void run_race(void *ctx, size_t runner)
{
    struct race *r = ctx;
    for (size_t i = runner / 2; i < RACES; i += RUNNERS / 2) {
        char name[16];
        snprintf(name, sizeof name, "race-%zu", i);
        if (runner % 2) {
            cleanup_free char *path = xasprintf(PODS "/%s", name);
            cluster_delete(path);
        } else {
            for (size_t late = i % 3; late; late--)
                lib_pause(); /* so that either can be first */
            cleanup_free char *why = bind_by_hand(name, r->uid[i], "n1");
            atomic_fetch_add(*why ? &r->gone : &r->bound, 1);
        }
    }
}

START_TEST(deletions_that_race_with_binds)
{
    struct race r = {0};
    cleanup_json json_t *pods = json_array();
    cluster_add_node("n1", NULL, NULL, CARDS(16384, 16384, 16384));
    for (int i = 0; i < RACES; i++) {
        char name[16];
        snprintf(name, sizeof name, "race-%d", i);
        cluster_create_pod(name, 1, "", SCHEDULER("nobody"));
        json_array_append_new(pods, cluster_pod(name));
        r.uid[i] = lib_str(json_array_get(pods, (size_t)i), "metadata.uid");
    }
    lib_wait(cluster_knows_pending());
    lib_threads(RUNNERS, run_race, &r);
    ck_assert_int_eq(r.bound + r.gone, RACES);
    cluster_settle();
}

/* -- other clients that bind -- */

static bool is_unplaced(const char *node, const char *pod)
{
    cleanup_json json_t *j = extender_inspect(&cluster.extender, node);
    json_t *first = json_array_get(lib_at(j, "unplaced"), 0);
    return strcmp(lib_str(first, "name"), pod) == 0;
}

/* Pods that another client bound to a node with one card and to a node with two. */
static void check_foreign(void)
{
    cluster_wait_running("on-one");
    cluster_wait_running("on-two");
    lib_wait(extender_promised(&cluster.extender, "one") == 6 &&
             is_unplaced("two", "on-two"));
    cluster_check_free("one", 10);
    cluster_check_free("two", 10); /* its card is unknown, so it counts on both */
    cluster_agrees();
    cluster_delete(PODS "/on-one");
    cluster_delete(PODS "/on-two");
    lib_wait(extender_promised(&cluster.extender, "one") == 0 &&
             !is_unplaced("two", "on-two"));
    cluster_check_free("one", 16);
    cluster_settle();
}

static void add_nodes_of_one_and_two(void)
{
    cluster_add_node("one", NULL, NULL, CARDS(16384));
    cluster_add_node("two", NULL, NULL, CARDS(16384, 16384));
}

START_TEST(a_second_scheduler_without_the_extender)
{
    struct program p;
    cleanup_free char *programs = temp_read(cluster.dir, "run/programs");
    cleanup_free char *path =
        xasprintf("%.*s/kube-scheduler", (int)strcspn(programs, "\n"), programs);
    cleanup_free char *config = xasprintf(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "clientConnection: {kubeconfig: '%s/scheduler.kubeconfig'}\n"
        "leaderElection: {leaderElect: false}\nprofiles: [{schedulerName: second}]\n",
        cluster.dir);
    temp_write(lib_dir, "second.yaml", config);
    cleanup_free char *file = temp_path(lib_dir, "second.yaml");
    add_nodes_of_one_and_two();
    program_start(&p, lib_dir, ARGV(path, "--config", file, "--secure-port", "0"));
    cluster_create_pod("on-one", 6, "", SCHEDULER("second") ON("one"));
    cluster_create_pod("on-two", 6, "", SCHEDULER("second") ON("two"));
    check_foreign();
    program_kill(&p);
}

CLUSTER_MAIN("faults", 400, ARGV("--nodes", "0"), an_extender_that_is_killed_in_a_burst,
             an_api_server_that_is_killed_in_a_burst, an_etcd_that_is_stopped_in_a_burst,
             a_stopped_watch_whose_history_was_compacted,
             deletions_that_race_with_binds, a_second_scheduler_without_the_extender)
