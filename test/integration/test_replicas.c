/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/rng.h"
#include "core/core.h"
#include "integration/suite.h"

/*
 * Several extenders at once, with calls as from kube-scheduler, while the leader fails in
 * various ways. Clients call any ready replica, as through a Service. The cluster is full
 * all the time, so that a lost promise leads to an overcommit.
 */

enum {
    REPLICAS = 3,
    SLOTS = 2 * REPLICAS, /* replicas before and after a rolling update */
    CLIENTS = 8,
    CLIENT_PODS = 8, /* of a client at once: 192 units in all, in pods of */
    UNITS = 3,       /* units each */
    NODES = 5,       /* with 2 cards of 16 units: 5 pods a card, 50 in all */
    LEASE_MS = 5000,
    GAP_MS = LEASE_MS + 25000 * LIB_SLOWER, /* without a bind, at most */
};

static const char *const node_names[NODES + 1] = {"n0", "n1", "n2", "n3", "n4"};

static struct extender extenders[SLOTS];
static _Atomic size_t started;
static _Atomic bool ready[SLOTS], /* readyz, as a Service sees it */
    ended[SLOTS];                 /* not called any more, whatever readyz said */
static pthread_t load;
static _Atomic bool stop;
static _Atomic int bound, rejected, failed;
static _Atomic int64_t last_ms, gap_ms; /* between two successful binds */
static _Atomic(char *) first_error;     /* of the first call that failed */

static void add_replica(void)
{
    extender_start(&extenders[started], &sim, ARGV("--drain-delay", "500ms"));
    ready[started] = true;
    started++;
}

static const struct extender *pick(struct rng *rng)
{
    for (;;) {
        size_t i = rng_below(rng, SLOTS);
        if (ready[i] && !ended[i])
            return &extenders[i];
        if (stop)
            return &extenders[0];
    }
}

static void note_bound(void)
{
    int64_t now = lib_now_ms(), last = atomic_exchange(&last_ms, now), most = gap_ms;
    int64_t gap = last ? now - last : 0;
    while (gap > most && !atomic_compare_exchange_weak(&gap_ms, &most, gap))
        ;
    bound++;
}

static void note_failed(const char *why)
{
    char *none = NULL, *text = xstrdup(why);
    failed++;
    if (!atomic_compare_exchange_strong(&first_error, &none, text))
        free(text);
}

/* Binds pods. Deletes its oldest pod if nothing fits or if it has CLIENT_PODS of them. */
struct client {
    struct rng rng;
    size_t id;
    int created, first;
};

static char *pod_name(const struct client *c, int i)
{
    return lib_fmt("c%zu-%d", c->id, i);
}

/* Filter and prioritize before a bind; each call goes to any ready replica. */
static bool filter_and_prioritize(struct client *c, const char *name)
{
    static const char *const paths[] = {"/gpushare-scheduler/filter",
                                        "/gpushare-scheduler/prioritize"};
    cleanup_buf struct buf body = {0}, reply = {0};
    lib_filter_body(&body, name, UNITS, node_names);
    array_items(path, paths) {
        unsigned status = peer_call(&pick(&c->rng)->verbs, "POST", *path, body.p, &reply);
        if (status == 200)
            continue;
        note_failed(lib_fmt("%s: %u: %s", *path, status, reply.p));
        return false;
    }
    return true;
}

static bool is_rejected(const char *why)
{
    return strstr(why, "no card of node") || strstr(why, "already bound to");
}

/* Retries until the pod is bound, rejected for lack of memory, or the test ends. */
static bool bind_pod(struct client *c, const char *name)
{
    cleanup_buf struct buf why = {0};
    for (; !stop; lib_pause()) {
        const char *node = node_names[rng_below(&c->rng, NODES)];
        if (!filter_and_prioritize(c, name))
            continue;
        if (extender_bind(pick(&c->rng), name, node, &why)) {
            note_bound();
            return true;
        }
        if (is_rejected(why.p)) {
            rejected++;
            return false;
        }
        note_failed(why.p);
    }
    return false;
}

static void run_client(void *ctx, size_t i)
{
    struct client c = {.id = i};
    (void)ctx;
    rng_init(&c.rng, i + 1);
    for (; !stop; lib_pause()) {
        const char *name = pod_name(&c, c.created++);
        sim_add_pod(&sim, name, UNITS);
        bool is_bound = bind_pod(&c, name);
        if ((!is_bound || c.created - c.first > CLIENT_PODS) && c.created - c.first > 1)
            sim_delete_pod(&sim, pod_name(&c, c.first++));
    }
}

/* The last one plays the Service. */
static void run_one(void *ctx, size_t i)
{
    if (i < CLIENTS) {
        run_client(ctx, i);
        return;
    }
    for (; !stop; lib_pause())
        for (size_t k = 0; k < started; k++)
            if (!ended[k])
                ready[k] = extender_ready(&extenders[k]);
}

static void *run_load(void *arg)
{
    lib_threads(CLIENTS + 1, run_one, arg);
    return NULL;
}

/* Waits for `more` binds. No card may be overcommitted meanwhile. */
static void wait_for_binds(int more)
{
    int until = bound + more;
    lib_wait_saying((oracle_check(&sim.api), bound >= until), "no more binds succeed: %s",
                    first_error);
}

/* The counters begin once binds succeed. */
static void set_up(void)
{
    for (int i = 0; i < NODES; i++)
        sim_add_node(&sim, node_names[i], 2, 16);
    for (int i = 0; i < REPLICAS; i++)
        add_replica();
    ck_assert_int_eq(pthread_create(&load, NULL, run_load, NULL), 0);
    wait_for_binds(50);
    free(atomic_exchange(&first_error, NULL));
    failed = 0;
    gap_ms = 0;
}

static bool find_leader(size_t *leader)
{
    for (*leader = 0; *leader < started; ++*leader)
        if (!ended[*leader] && extender_leads(&extenders[*leader]))
            return true;
    return false;
}

static size_t leader(void)
{
    size_t i;
    lib_wait(find_leader(&i));
    return i;
}

static void mark_ended(size_t i)
{
    ready[i] = false;
    ended[i] = true;
}

static int64_t report(const char *what)
{
    const char *why = first_error;
    printf("measured: %s: %lld ms without a bind, %d bound, %d rejected, %d failed%s%s\n",
           what, (long long)gap_ms, bound, rejected, failed, why ? ": " : "",
           why ? why : "");
    return gap_ms;
}

/* Every pending pod can be bound or rejected by every remaining replica, and every ledger
 * agrees with the objects in the API server. */
static void tear_down(void)
{
    stop = true;
    pthread_join(load, NULL);
    json_t *pod;
    size_t k = 0;
    lib_each(pod, lib_at(peer_get(&sim.api, "/api/v1/pods"), "items")) {
        cleanup_buf struct buf why = {0};
        size_t i = ++k % started;
        if (*lib_str(pod, "spec.nodeName") || ended[i])
            continue;
        const char *name = lib_str(pod, "metadata.name");
        bool done = extender_bind(&extenders[i], name, node_names[k % NODES], &why) ||
                    is_rejected(why.p);
        ck_assert_msg(done, "%s is neither bound nor rejected: %s", name, why.p);
    }
    for (size_t i = 0; i < started; i++) {
        if (ended[i]) {
            extender_kill(&extenders[i]);
            continue;
        }
        oracle_agrees(&sim.api, &extenders[i]);
        ck_assert_int_eq(
            lib_int(peer_get(&extenders[i].observers, "/inspect"), "overcommits"), 0);
    }
    for (size_t i = 0; i < started; i++)
        if (!ended[i])
            extender_stop(&extenders[i]);
    free(first_error);
}

TEST(leader_is_killed)
{
    set_up();
    size_t i = leader();
    program_signal(&extenders[i].program, SIGKILL);
    mark_ended(i);
    wait_for_binds(100);
    ck_assert_int_le(report("the leader is killed"), GAP_MS);
    tear_down();
}

TEST(leader_is_paused_and_continues)
{
    set_up();
    size_t i = leader();
    mark_ended(i);
    program_signal(&extenders[i].program, SIGSTOP);
    wait_for_binds(100);
    program_signal(&extenders[i].program, SIGCONT);
    ended[i] = false;
    wait_for_binds(100);
    /* Clients whose call went to the stopped leader do not count: they hang until it
     * continues. */
    ck_assert_int_le(report("the leader is paused until another replica leads"), GAP_MS);
    tear_down();
}

TEST(no_call_fails_in_a_rolling_update)
{
    set_up();
    for (size_t i = 0; i < REPLICAS; i++) {
        add_replica();
        program_signal(&extenders[i].program, SIGTERM);
        ck_assert_int_eq(program_wait(&extenders[i].program), 0);
        /* Otherwise the next leader waits until the lease expires. */
        ck_assert_lacks(program_output(&extenders[i].program),
                        "the lease is not released");
        mark_ended(i);
        wait_for_binds(50);
    }
    report("three replicas are replaced");
    ck_assert_int_eq(failed, 0);
    tear_down();
}

/* Sends a bind of the pod p as a replica forwards it. Returns the status. */
static unsigned forward(const struct extender *to)
{
    cleanup_buf struct buf body = {0};
    lib_bind_body(&body, "p", "n1");
    struct httpc_request req = {.method = "POST",
                                .path = "/bind",
                                .content_type = "application/json",
                                .flag_header = "X-Gpushare-Forwarded",
                                .body = buf_span(&body),
                                .timeout_ms = LIB_WAIT_MS};
    struct httpc_reply reply;
    struct err err = {0};
    ck_assert_done(httpc_call(to->verbs.http, &req, 1 << 16, &reply, &err), err);
    unsigned status = reply.status;
    buf_addc(&reply.body, '\0');
    if (status == 421)
        ck_assert_contains(reply.body.p, "is held by");
    httpc_reply_fini(&reply);
    return status;
}

TEST(a_forwarded_bind_is_not_forwarded_again)
{
    sim_add_node(&sim, "n1", 1, 16);
    sim_add_pod(&sim, "p", 1);
    add_replica();
    add_replica();
    size_t i = leader();
    int64_t start = lib_now_ms();
    ck_assert_uint_eq(forward(&extenders[!i]), 421);
    ck_assert_int_lt(lib_now_ms() - start, 10000 * LIB_SLOWER);
    ck_assert_int_eq(sim_bound(&sim), 0);
    /* The leader accepts it; the standby accepts it only if it was not forwarded
     * before. */
    ck_assert_uint_eq(forward(&extenders[i]), 200);
    ck_assert(extender_bind(&extenders[!i], "p", "n1", NULL));
    ck_assert_int_eq(sim_count(&sim, "create", "pods", "binding"), 1);
    extender_stop(&extenders[0]);
    extender_stop(&extenders[1]);
}

static void bind_one(void *ctx, size_t i)
{
    const char *name = lib_fmt("p%zu", i);
    sim_add_pod(&sim, name, 1);
    ck_assert_msg(extender_bind(ctx, name, "n1", NULL), "%s was not bound", name);
}

/* As many concurrent binds as the leader takes connections, plus a call of the test. */
TEST(forwarded_binds_leave_connections_to_others)
{
    enum { CONNECTIONS = 8, BINDS = 2 * CONNECTIONS };
    struct extender follower;
    sim_add_node(&sim, "n1", 4, 16);
    suite_extender(ARGV("--connections", "8"));
    lib_wait(extender_leads(&extender));
    extender_start(&follower, &sim, NULL);
    sim_fault(&sim, "{\"subresource\":\"binding\",\"action\":\"hang\",\"hangMs\":500}");
    lib_threads(BINDS, bind_one, &follower);
    /* Immediately, as kube-scheduler calls the leader. */
    enum { OTHERS = CONNECTIONS - 5 }; /* four idle ones and the test's own */
    struct peer others[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        peer_init(&others[i], extender.verbs.port);
        ck_assert_uint_eq(peer_status(&others[i], "/version"), 200);
    }
    for (int i = 0; i < OTHERS; i++)
        peer_fini(&others[i]);
    extender_stop(&follower);
}

static void bind_member(void *ctx, size_t i)
{
    const char *name = lib_fmt("m%zu", i);
    ck_assert_msg(extender_bind(ctx, name, "n1", NULL), "%s was not bound", name);
}

/* The lease is shorter than a hold: the follower waits as long as the leader renews it. */
TEST(a_bind_is_held_through_a_follower)
{
    struct extender follower;
    cleanup_buf struct buf why = {0};
    sim_add_node(&sim, "n1", 3, 16);
    suite_extender(NULL);
    lib_wait(extender_leads(&extender));
    extender_start(&follower, &sim, NULL);
    for (int i = 0; i < 3; i++)
        sim_load(&sim,
                 "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"m%d\","
                 "\"namespace\":"
                 "\"default\",\"uid\":\"uid-m%d\",\"labels\":{\"scheduling.x-k8s.io/"
                 "pod-group\":\"g\"},\"annotations\":{\"gpushare/gang-minimum\":\"3\"}},"
                 "\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\","
                 "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"10\"}}}]}}",
                 i, i);
    int64_t from_ms = lib_now_ms();
    ck_assert(!extender_bind(&follower, "m0", "n1", &why));
    ck_assert_int_ge(lib_now_ms() - from_ms, CORE_HOLD_MS - 500);
    ck_assert_contains(why.p, "gang g: waits until enough of its members can start");
    ck_assert_int_eq(extender_metric(&extender, "gpushare_gang_starts_failed_total"), 1);
    lib_threads(3, bind_member, &follower);
    extender_stop(&follower);
}

SUITE_MAIN(150, NULL)
