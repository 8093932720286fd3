/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "lib/sim.h"

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

struct fixture {
    struct sim sim;
    struct extender extenders[SLOTS];
    size_t n;                  /* replicas started */
    _Atomic bool ready[SLOTS], /* readyz, as a Service sees it */
        ended[SLOTS];          /* not called any more, whatever readyz said */
    pthread_t clients[CLIENTS], service;
    _Atomic bool stop;
    _Atomic int bound, rejected, failed;
    _Atomic int64_t last_ms, gap_ms; /* between two successful binds */
    pthread_mutex_t lock;
    struct buf first_error; /* of the first call that failed */
};

static void *watch_readiness(void *arg)
{
    struct fixture *f = arg;
    while (!atomic_load(&f->stop)) {
        for (size_t i = 0; i < SLOTS; i++)
            if (i < __atomic_load_n(&f->n, __ATOMIC_ACQUIRE) &&
                !atomic_load(&f->ended[i]))
                atomic_store(&f->ready[i], extender_ready(&f->extenders[i]));
        lib_pause();
    }
    return NULL;
}

static void add_replica(struct fixture *f)
{
    extender_start(&f->extenders[f->n], &f->sim, ARGV("--drain-delay", "500ms"));
    atomic_store(&f->ready[f->n], true);
    __atomic_store_n(&f->n, f->n + 1, __ATOMIC_RELEASE);
}

static struct extender *pick(struct fixture *f, struct rng *rng)
{
    for (;;) {
        size_t i = rng_below(rng, SLOTS);
        if (atomic_load(&f->ready[i]) && !atomic_load(&f->ended[i]))
            return &f->extenders[i];
        if (atomic_load(&f->stop))
            return &f->extenders[0];
    }
}

static void note_bound(struct fixture *f)
{
    int64_t now = lib_now_ms(), last = atomic_exchange(&f->last_ms, now);
    int64_t gap = last ? now - last : 0, most = atomic_load(&f->gap_ms);
    while (gap > most && !atomic_compare_exchange_weak(&f->gap_ms, &most, gap))
        ;
    atomic_fetch_add(&f->bound, 1);
}

static void note_failed(struct fixture *f, const char *why)
{
    atomic_fetch_add(&f->failed, 1);
    pthread_mutex_lock(&f->lock);
    if (!f->first_error.n)
        buf_adds(&f->first_error, why);
    pthread_mutex_unlock(&f->lock);
}

/* The error of the first call that failed, or "". New. */
static char *first_error(struct fixture *f)
{
    pthread_mutex_lock(&f->lock);
    char *why = xstrdup(f->first_error.n ? f->first_error.p : "");
    pthread_mutex_unlock(&f->lock);
    return why;
}

/* Binds pods. Deletes its oldest pod if nothing fits or if it has CLIENT_PODS of them. */
struct client {
    struct fixture *f;
    struct rng rng;
    int id, created, first;
};

static void pod_name(const struct client *c, int i, char name[32])
{
    snprintf(name, 32, "c%d-%d", c->id, i);
}

static void delete_oldest(struct client *c)
{
    char name[32];
    pod_name(c, c->first++, name);
    sim_delete_pod(&c->f->sim, name);
}

/* Filter and prioritize before a bind; each call goes to any ready replica. */
static bool filter_and_prioritize(struct client *c, const char *name)
{
    static const char *const paths[] = {"/gpushare-scheduler/filter",
                                        "/gpushare-scheduler/prioritize"};
    cleanup_buf struct buf body = {0}, reply = {0}, why = {0};
    lib_filter_body(&body, name, UNITS, node_names);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        buf_clear(&reply);
        unsigned status =
            peer_call(&pick(c->f, &c->rng)->verbs, "POST", paths[i], body.p, &reply);
        if (status == 200)
            continue;
        buf_printf(&why, "%s: %u: %s", paths[i], status, reply.n ? reply.p : "");
        note_failed(c->f, why.p);
        return false;
    }
    return true;
}

/* Retries until the pod is bound, rejected for lack of memory, or the test ends. */
static bool bind_pod(struct client *c, const char *name)
{
    cleanup_buf struct buf why = {0};
    while (!atomic_load(&c->f->stop)) {
        const char *node = node_names[rng_below(&c->rng, NODES)];
        if (!filter_and_prioritize(c, name)) {
            lib_pause();
            continue;
        }
        if (extender_bind(pick(c->f, &c->rng), name, node, &why)) {
            note_bound(c->f);
            return true;
        }
        if (strstr(why.p, "no card of node") || strstr(why.p, "already bound to")) {
            atomic_fetch_add(&c->f->rejected, 1);
            return false;
        }
        note_failed(c->f, why.p);
        lib_pause();
    }
    return false;
}

static void *run_client(void *arg)
{
    struct client *c = arg;
    while (!atomic_load(&c->f->stop)) {
        char name[32];
        pod_name(c, c->created++, name);
        sim_add_pod(&c->f->sim, name, UNITS);
        bool bound = bind_pod(c, name);
        if ((!bound || c->created - c->first > CLIENT_PODS) && c->created - c->first > 1)
            delete_oldest(c);
        lib_pause();
    }
    free(c);
    return NULL;
}

static void set_up(struct fixture *f)
{
    *f = (struct fixture){0};
    pthread_mutex_init(&f->lock, NULL);
    sim_start(&f->sim, ARGV(NULL));
    for (int i = 0; i < NODES; i++)
        sim_add_node(&f->sim, node_names[i], 2, 16);
    for (int i = 0; i < REPLICAS; i++)
        add_replica(f);
    pthread_create(&f->service, NULL, watch_readiness, f);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = xcalloc(1, sizeof *c);
        c->f = f;
        c->id = i;
        rng_init(&c->rng, (uint64_t)i + 1);
        pthread_create(&f->clients[i], NULL, run_client, c);
    }
}

/* Waits for `more` binds. No card may be overcommitted meanwhile. */
static void wait_for_binds(struct fixture *f, int more)
{
    int until = atomic_load(&f->bound) + more;
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    while (atomic_load(&f->bound) < until) {
        if (lib_now_ms() >= end)
            ck_abort_msg("no more binds succeed: %s", first_error(f));
        oracle_check(&f->sim.api);
        lib_pause();
    }
}

/* Resets the counters once binds succeed. */
static void reset_counters(struct fixture *f)
{
    wait_for_binds(f, 50);
    pthread_mutex_lock(&f->lock);
    buf_clear(&f->first_error);
    pthread_mutex_unlock(&f->lock);
    atomic_store(&f->failed, 0);
    atomic_store(&f->gap_ms, 0);
}

static size_t leader(struct fixture *f)
{
    for (int64_t end = lib_now_ms() + LIB_WAIT_MS;;) {
        for (size_t i = 0; i < f->n; i++) {
            if (!f->ended[i] && extender_leads(&f->extenders[i]))
                return i;
        }
        ck_assert_msg(lib_now_ms() < end, "no replica leads");
        lib_pause();
    }
}

static void mark_ended(struct fixture *f, size_t i)
{
    atomic_store(&f->ready[i], false);
    atomic_store(&f->ended[i], true);
}

static int64_t report(struct fixture *f, const char *what)
{
    cleanup_free char *why = first_error(f);
    int64_t gap = atomic_load(&f->gap_ms);
    printf("measured: %s: %lld ms without a bind, %d bound, %d rejected, %d failed%s%s\n",
           what, (long long)gap, atomic_load(&f->bound), atomic_load(&f->rejected),
           atomic_load(&f->failed), *why ? ": " : "", why);
    return gap;
}

/* Every pending pod can be bound or rejected by every remaining replica, and every ledger
 * agrees with the objects in the API server. */
static void tear_down(struct fixture *f)
{
    atomic_store(&f->stop, true);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(f->clients[i], NULL);
    pthread_join(f->service, NULL);
    cleanup_json json_t *pods = peer_json(&f->sim.api, "GET", "/api/v1/pods", NULL);
    json_t *pod;
    struct rng rng;
    size_t k;
    rng_init(&rng, 9);
    json_array_foreach(lib_at(pods, "items"), k, pod)
    {
        cleanup_buf struct buf why = {0};
        size_t i = k % f->n;
        if (*lib_str(pod, "spec.nodeName") || f->ended[i])
            continue;
        const char *name = lib_str(pod, "metadata.name");
        bool done = extender_bind(&f->extenders[i], name, node_names[k % NODES], &why) ||
                    strstr(why.p, "no card of node") || strstr(why.p, "already bound");
        ck_assert_msg(done, "%s is neither bound nor rejected: %s", name, why.p);
    }
    for (size_t i = 0; i < f->n; i++) {
        if (f->ended[i])
            continue;
        oracle_agrees(&f->sim.api, &f->extenders[i]);
        cleanup_json json_t *j =
            peer_json(&f->extenders[i].observers, "GET", "/inspect", NULL);
        ck_assert_int_eq(json_integer_value(json_object_get(j, "overcommits")), 0);
    }
    for (size_t i = 0; i < f->n; i++) {
        if (!f->ended[i]) {
            extender_stop(&f->extenders[i]);
        } else {
            peer_fini(&f->extenders[i].verbs);
            peer_fini(&f->extenders[i].observers);
            program_kill(&f->extenders[i].program);
        }
    }
    sim_stop(&f->sim);
    buf_fini(&f->first_error);
    pthread_mutex_destroy(&f->lock);
}

START_TEST(leader_is_killed)
{
    struct fixture f;
    set_up(&f);
    reset_counters(&f);
    size_t i = leader(&f);
    program_signal(&f.extenders[i].program, SIGKILL);
    mark_ended(&f, i);
    wait_for_binds(&f, 100);
    ck_assert_int_le(report(&f, "the leader is killed"), GAP_MS);
    tear_down(&f);
}
END_TEST

START_TEST(leader_is_paused_and_continues)
{
    struct fixture f;
    set_up(&f);
    reset_counters(&f);
    size_t i = leader(&f);
    mark_ended(&f, i);
    program_signal(&f.extenders[i].program, SIGSTOP);
    wait_for_binds(&f, 100);
    program_signal(&f.extenders[i].program, SIGCONT);
    atomic_store(&f.ended[i], false);
    wait_for_binds(&f, 100);
    /* Clients whose call went to the stopped leader do not count: they hang until it
     * continues. */
    ck_assert_int_le(report(&f, "the leader is paused until another replica leads"),
                     GAP_MS);
    tear_down(&f);
}
END_TEST

static void stop_one(struct fixture *f, size_t i)
{
    program_signal(&f->extenders[i].program, SIGTERM);
    ck_assert_int_eq(program_wait(&f->extenders[i].program), 0);
    /* Otherwise the next leader waits until the lease expires. */
    ck_assert_ptr_null(
        strstr(program_output(&f->extenders[i].program), "the lease is not released"));
    mark_ended(f, i);
}

START_TEST(no_call_fails_in_a_rolling_update)
{
    struct fixture f;
    set_up(&f);
    reset_counters(&f);
    for (size_t i = 0; i < REPLICAS; i++) {
        add_replica(&f);
        stop_one(&f, i);
        wait_for_binds(&f, 50);
    }
    report(&f, "three replicas are replaced");
    ck_assert_int_eq(atomic_load(&f.failed), 0);
    tear_down(&f);
}
END_TEST

START_TEST(a_forwarded_bind_is_not_forwarded_again)
{
    struct fixture f = {0};
    cleanup_buf struct buf body = {0};
    sim_start(&f.sim, ARGV(NULL));
    sim_add_node(&f.sim, "n1", 1, 16);
    sim_add_pod(&f.sim, "p", 1);
    add_replica(&f);
    add_replica(&f);
    size_t i = leader(&f);
    struct extender *standby = &f.extenders[!i];
    lib_bind_body(&body, "p", "n1");
    struct httpc_request req = {.method = "POST",
                                .path = "/bind",
                                .content_type = "application/json",
                                .flag_header = "X-Gpushare-Forwarded",
                                .body = buf_span(&body),
                                .timeout_ms = LIB_WAIT_MS};
    struct httpc_reply reply;
    struct err err = {0};
    int64_t start = lib_now_ms();
    ck_assert_done(httpc_call(standby->verbs.http, &req, 1 << 16, &reply, &err), err);
    ck_assert_uint_eq(reply.status, 421);
    ck_assert_int_lt(lib_now_ms() - start, 10000 * LIB_SLOWER);
    buf_addc(&reply.body, '\0');
    ck_assert_contains(reply.body.p, "is held by");
    httpc_reply_fini(&reply);
    ck_assert_int_eq(sim_bound(&f.sim), 0);
    /* The leader accepts it; the standby accepts it only if it was not forwarded
     * before. */
    ck_assert_done(httpc_call(f.extenders[i].verbs.http, &req, 1 << 16, &reply, &err),
                   err);
    ck_assert_uint_eq(reply.status, 200);
    httpc_reply_fini(&reply);
    ck_assert(extender_bind(standby, "p", "n1", NULL));
    ck_assert_int_eq(sim_count(&f.sim, "create", "pods", "binding"), 1);
    for (size_t k = 0; k < 2; k++)
        extender_stop(&f.extenders[k]);
    sim_stop(&f.sim);
}
END_TEST

struct one_bind {
    const struct extender *e;
    char name[16];
    pthread_t thread;
    bool done;
};

static void *bind_one(void *arg)
{
    struct one_bind *b = arg;
    b->done = extender_bind(b->e, b->name, "n1", NULL);
    return NULL;
}

/* As many concurrent binds as the leader takes connections, plus a call of the test. */
START_TEST(forwarded_binds_leave_connections_to_others)
{
    enum { CONNECTIONS = 8, BINDS = 2 * CONNECTIONS };
    struct sim s;
    struct extender e[2];
    struct one_bind binds[BINDS];
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 4, 16);
    extender_start(&e[0], &s, ARGV("--connections", "8"));
    lib_wait(extender_leads(&e[0]));
    extender_start(&e[1], &s, ARGV(NULL));
    sim_fault(&s, "{\"subresource\":\"binding\",\"action\":\"hang\",\"hangMs\":500}");
    for (int i = 0; i < BINDS; i++) {
        binds[i] = (struct one_bind){.e = &e[1]};
        snprintf(binds[i].name, sizeof binds[i].name, "p%d", i);
        sim_add_pod(&s, binds[i].name, 1);
    }
    for (int i = 0; i < BINDS; i++)
        pthread_create(&binds[i].thread, NULL, bind_one, &binds[i]);
    for (int i = 0; i < BINDS; i++) {
        pthread_join(binds[i].thread, NULL);
        ck_assert_msg(binds[i].done, "%s was not bound", binds[i].name);
    }
    /* Immediately, as kube-scheduler calls the leader. */
    enum { OTHERS = CONNECTIONS - 5 }; /* four idle ones and the test's own */
    struct peer others[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        peer_init(&others[i], e[0].verbs.port);
        ck_assert_uint_eq(peer_status(&others[i], "/version"), 200);
    }
    for (int i = 0; i < OTHERS; i++)
        peer_fini(&others[i]);
    extender_stop(&e[1]);
    extender_stop(&e[0]);
    sim_stop(&s);
}
END_TEST

LIB_MAIN("replicas", 150, forwarded_binds_leave_connections_to_others,
         a_forwarded_bind_is_not_forwarded_again, leader_is_killed,
         leader_is_paused_and_continues, no_call_fails_in_a_rolling_update)
