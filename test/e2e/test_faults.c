/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdatomic.h>

#include "e2e/daemon.h"
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

/* -- programs that stop during a burst of 300 pods -- */

static void burst_with(void (*trouble)(void), const char *what)
{
    burst_add_nodes();
    burst_meanwhile(trouble, what);
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

TEST(an_extender_that_is_killed_in_a_burst)
{
    burst_with(kill_the_extender, "280 pods, and the extender is killed twice");
}

static void kill_the_api_server(void)
{
    kill_at(60, "kube-apiserver");
    kill_at(180, "kube-apiserver");
}

TEST(an_api_server_that_is_killed_in_a_burst)
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

TEST(an_etcd_that_is_stopped_in_a_burst)
{
    burst_with(let_etcd_stand_still, "280 pods, and etcd stands still for 8 s");
    ck_assert_int_eq(
        lib_int(peer_get(&cluster.extender.observers, "/inspect"), "overcommits"), 0);
}

/* -- a watch across a compaction -- */

static void compact(void)
{
    struct peer etcd;
    peer_init_cert(&etcd, (unsigned)atoi(cluster_file("run/etcd.port")),
                   cluster_pki("etcd-ca.crt"), cluster_pki("etcd-client.crt"),
                   cluster_pki("etcd-client.key"));
    const json_t *status = peer_post(&etcd, "/v3/maintenance/status", "{}");
    peer_do(&etcd, "POST", "/v3/kv/compaction",
            lib_fmt("{\"revision\":%s,\"physical\":true}",
                    lib_str(status, "header.revision")));
    peer_fini(&etcd);
}

/* More than the buffers between the API server and a client hold. */
static void create_many(void)
{
    enum { MANY = 100, BYTES = 100000 };
    cleanup_free char *bytes = xcalloc(1, BYTES + 1);
    memset(bytes, 'x', BYTES);
    const char *metadata = lib_fmt(",\"annotations\":{\"large\":\"%s\"}", bytes);
    for (int i = 0; i < MANY; i++)
        cluster_create_pod(lib_fmt("many-%d", i), 1, metadata, SCHEDULER("nobody"));
    for (int i = 0; i < MANY; i += 2)
        cluster_delete(lib_fmt(PODS "/many-%d", i));
}

TEST(a_stopped_watch_whose_history_was_compacted)
{
    attempt_without_policies();
    cluster_add_node("n1", "", CARDS(16384, 16384));
    cluster_add_node("n2", "", CARDS(16384));
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
    /* Its watches broke, so it lists what no history has any more. */
    lib_wait(lib_int(extender_node(&cluster.extender, "n2"), "totalGPU") == 8 &&
             extender_promised(&cluster.extender, "n2") == 3 && cluster_knows_pending());
    cluster_report("until an extender that stood still has caught up",
                   lib_now_ms() - begun);
    cluster_settle();
}

/* -- pods deleted between filter and bind -- */

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
        const char *name = lib_fmt("race-%zu", i);
        if (runner % 2) {
            cluster_delete(lib_fmt(PODS "/%s", name));
        } else {
            for (size_t late = i % 3; late; late--)
                lib_pause(); /* so that either can be first */
            const json_t *answer =
                peer_post(&cluster.extender.verbs, "/gpushare-scheduler/bind",
                          lib_fmt("{\"PodName\":\"%s\",\"PodNamespace\":\"default\","
                                  "\"PodUID\":\"%s\",\"Node\":\"n1\"}",
                                  name, r->uid[i]));
            atomic_fetch_add(*lib_str(answer, "Error") ? &r->gone : &r->bound, 1);
        }
    }
}

TEST(deletions_that_race_with_binds)
{
    struct race r = {0};
    cluster_add_node("n1", "", CARDS(16384, 16384, 16384));
    for (int i = 0; i < RACES; i++) {
        const char *name = lib_fmt("race-%d", i);
        cluster_create_pod(name, 1, "", SCHEDULER("nobody"));
        r.uid[i] = lib_str(cluster_pod(name), "metadata.uid");
    }
    lib_wait(cluster_knows_pending());
    lib_threads(RUNNERS, run_race, &r);
    ck_assert_int_eq(r.bound + r.gone, RACES);
    cluster_settle();
}

/* -- other clients that bind -- */

static bool is_unplaced(const char *node, const char *pod)
{
    return strcmp(lib_str(extender_node(&cluster.extender, node), "unplaced.0.name"),
                  pod) == 0;
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

TEST(a_second_scheduler_without_the_extender)
{
    struct program p;
    temp_write(lib_dir, "second.yaml",
               "apiVersion: kubescheduler.config.k8s.io/v1\nkind: "
               "KubeSchedulerConfiguration\nleaderElection: {leaderElect: false}\n"
               "profiles: [{schedulerName: second}]\n");
    cluster_add_node("one", "", CARDS(16384));
    cluster_add_node("two", "", CARDS(16384, 16384));
    cluster_scheduler(&p, lib_path("second.yaml"), "scheduler");
    cluster_create_pod("on-one", 6, "", SCHEDULER("second") ON("one"));
    cluster_create_pod("on-two", 6, "", SCHEDULER("second") ON("two"));
    check_foreign();
    program_kill(&p);
}

CLUSTER_MAIN(400)
