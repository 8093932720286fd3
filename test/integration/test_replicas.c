/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "lib/sim.h"

/*
 * Several extenders at a time, asked as kube-scheduler does while the one that holds the
 * lease goes away in one of the ways it can. Clients send to any replica that is ready,
 * as through a Service; the cluster is full all the time, so that every lost promise
 * shows.
 */

enum {
    REPLICAS = 3,
    SLOTS = 2 * REPLICAS, /* those of before and after an update */
    CLIENTS = 8,
    MINE = 8,  /* pods of a client at a time: 192 units of */
    UNITS = 3, /* each */
    NODES = 5, /* with 2 cards of 16 units: 5 pods a card, 50 in all */
    LEASE_MS = 5000,
};

static const char *const node_names[NODES + 1] = {"n0", "n1", "n2", "n3", "n4"};

struct world {
    struct sim sim;
    struct extender extenders[SLOTS];
    size_t n;                  /* started */
    _Atomic bool ready[SLOTS], /* as a Service sees it */
        ended[SLOTS];          /* not to be asked, whatever was seen of it before */
    pthread_t clients[CLIENTS], service;
    _Atomic bool stop;
    _Atomic int bound, refused, lost;
    _Atomic int64_t last_ms, gap_ms; /* between two binds that succeeded */
    pthread_mutex_t lock;
    struct buf why; /* of the first call that was lost */
};

static void *serve(void *arg)
{
    struct world *w = arg;
    while (!atomic_load(&w->stop)) {
        for (size_t i = 0; i < SLOTS; i++)
            if (i < __atomic_load_n(&w->n, __ATOMIC_ACQUIRE) &&
                !atomic_load(&w->ended[i]))
                atomic_store(&w->ready[i], extender_ready(&w->extenders[i]));
        lib_pause();
    }
    return NULL;
}

static void add_replica(struct world *w)
{
    extender_start(&w->extenders[w->n], &w->sim, ARGV("--drain-delay", "500ms"));
    atomic_store(&w->ready[w->n], true);
    __atomic_store_n(&w->n, w->n + 1, __ATOMIC_RELEASE);
}

static struct extender *pick(struct world *w, struct rng *rng)
{
    for (;;) {
        size_t i = rng_below(rng, SLOTS);
        if (atomic_load(&w->ready[i]) && !atomic_load(&w->ended[i]))
            return &w->extenders[i];
        if (atomic_load(&w->stop))
            return &w->extenders[0];
    }
}

static void note_bound(struct world *w)
{
    int64_t now = lib_now_ms(), last = atomic_exchange(&w->last_ms, now);
    int64_t gap = last ? now - last : 0, most = atomic_load(&w->gap_ms);
    while (gap > most && !atomic_compare_exchange_weak(&w->gap_ms, &most, gap))
        ;
    atomic_fetch_add(&w->bound, 1);
}

static void note_lost(struct world *w, const char *why)
{
    atomic_fetch_add(&w->lost, 1);
    pthread_mutex_lock(&w->lock);
    if (!w->why.n)
        buf_adds(&w->why, why);
    pthread_mutex_unlock(&w->lock);
}

/* Of the first call that was lost, "" where none was. To free. */
static char *first_lost(struct world *w)
{
    pthread_mutex_lock(&w->lock);
    char *why = xstrdup(w->why.n ? w->why.p : "");
    pthread_mutex_unlock(&w->lock);
    return why;
}

/* Binds pods, and lets the oldest go when nothing fits or it has its share. */
struct client {
    struct world *w;
    struct rng rng;
    int id, made, first;
};

static void pod_name(const struct client *c, int i, char name[32])
{
    snprintf(name, 32, "c%d-%d", c->id, i);
}

static void drop_oldest(struct client *c)
{
    char name[32];
    pod_name(c, c->first++, name);
    sim_delete_pod(&c->w->sim, name);
}

/* What comes before a bind: each call by whichever replica the Service names. */
static bool ask(struct client *c, const char *name)
{
    static const char *const paths[] = {"/gpushare-scheduler/filter",
                                        "/gpushare-scheduler/prioritize"};
    cleanup_buf struct buf body = {0}, reply = {0}, why = {0};
    lib_filter_body(&body, name, UNITS, node_names);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        buf_clear(&reply);
        unsigned status =
            peer_call(&pick(c->w, &c->rng)->verbs, "POST", paths[i], body.p, &reply);
        if (status == 200)
            continue;
        buf_printf(&why, "%s: %u: %s", paths[i], status, reply.n ? reply.p : "");
        note_lost(c->w, why.p);
        return false;
    }
    return true;
}

/* Until it is bound, or refused because there is no room; the end of the test too. */
static bool bind_pod(struct client *c, const char *name)
{
    cleanup_buf struct buf why = {0};
    while (!atomic_load(&c->w->stop)) {
        const char *node = node_names[rng_below(&c->rng, NODES)];
        if (!ask(c, name)) {
            lib_pause();
            continue;
        }
        if (extender_bind(pick(c->w, &c->rng), name, node, &why)) {
            note_bound(c->w);
            return true;
        }
        if (strstr(why.p, "no card of node") || strstr(why.p, "already bound to")) {
            atomic_fetch_add(&c->w->refused, 1);
            return false;
        }
        note_lost(c->w, why.p);
        lib_pause();
    }
    return false;
}

static void *run_client(void *arg)
{
    struct client *c = arg;
    while (!atomic_load(&c->w->stop)) {
        char name[32];
        pod_name(c, c->made++, name);
        sim_add_pod(&c->w->sim, name, UNITS);
        bool bound = bind_pod(c, name);
        if ((!bound || c->made - c->first > MINE) && c->made - c->first > 1)
            drop_oldest(c);
        lib_pause();
    }
    free(c);
    return NULL;
}

static void world_begin(struct world *w)
{
    *w = (struct world){0};
    pthread_mutex_init(&w->lock, NULL);
    sim_start(&w->sim, ARGV(NULL));
    for (int i = 0; i < NODES; i++)
        sim_add_node(&w->sim, node_names[i], 2, 16);
    for (int i = 0; i < REPLICAS; i++)
        add_replica(w);
    pthread_create(&w->service, NULL, serve, w);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = xcalloc(1, sizeof *c);
        c->w = w;
        c->id = i;
        rng_init(&c->rng, (uint64_t)i + 1);
        pthread_create(&w->clients[i], NULL, run_client, c);
    }
}

/* Binds go on: so many more. No card is ever over its size meanwhile. */
static void go_on(struct world *w, int more)
{
    int until = atomic_load(&w->bound) + more;
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    while (atomic_load(&w->bound) < until) {
        if (lib_now_ms() >= end)
            ck_abort_msg("binds do not go on: %s", first_lost(w));
        oracle_check(&w->sim.api);
        lib_pause();
    }
}

/* What was reported until now does not count. */
static void measure_from_here(struct world *w)
{
    go_on(w, 50);
    pthread_mutex_lock(&w->lock);
    buf_clear(&w->why);
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->lost, 0);
    atomic_store(&w->gap_ms, 0);
}

static size_t holder(struct world *w)
{
    for (;;) {
        for (size_t i = 0; i < w->n; i++) {
            cleanup_buf struct buf reply = {0};
            if (w->ended[i] || peer_call(&w->extenders[i].observers, "GET", "/inspect",
                                         NULL, &reply) != 200)
                continue;
            cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
            if (json_is_true(json_object_get(j, "leader")))
                return i;
        }
        lib_pause();
    }
}

static void gone(struct world *w, size_t i)
{
    atomic_store(&w->ready[i], false);
    atomic_store(&w->ended[i], true);
}

static int64_t report(struct world *w, const char *what)
{
    cleanup_free char *why = first_lost(w);
    int64_t gap = atomic_load(&w->gap_ms);
    printf("measured: %s: %lld ms without a bind, %d bound, %d refused, %d lost%s%s\n",
           what, (long long)gap, atomic_load(&w->bound), atomic_load(&w->refused),
           atomic_load(&w->lost), *why ? ": " : "", why);
    return gap;
}

/* Nobody is stranded: whoever waits is bound or refused, by each that is left, and each
 * knows what the objects say. */
static void world_end(struct world *w)
{
    atomic_store(&w->stop, true);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(w->clients[i], NULL);
    pthread_join(w->service, NULL);
    cleanup_json json_t *pods = peer_json(&w->sim.api, "GET", "/api/v1/pods", NULL);
    json_t *pod;
    struct rng rng;
    size_t k;
    rng_init(&rng, 9);
    json_array_foreach(lib_at(pods, "items"), k, pod)
    {
        cleanup_buf struct buf why = {0};
        size_t i = k % w->n;
        if (*lib_str(pod, "spec.nodeName") || w->ended[i])
            continue;
        const char *name = lib_str(pod, "metadata.name");
        bool done = extender_bind(&w->extenders[i], name, node_names[k % NODES], &why) ||
                    strstr(why.p, "no card of node") || strstr(why.p, "already bound");
        ck_assert_msg(done, "%s is stranded: %s", name, why.p);
    }
    for (size_t i = 0; i < w->n; i++) {
        if (w->ended[i])
            continue;
        oracle_agrees(&w->sim.api, &w->extenders[i]);
        cleanup_json json_t *j =
            peer_json(&w->extenders[i].observers, "GET", "/inspect", NULL);
        ck_assert_int_eq(json_integer_value(json_object_get(j, "overcommits")), 0);
    }
    for (size_t i = 0; i < w->n; i++) {
        if (!w->ended[i]) {
            extender_stop(&w->extenders[i]);
        } else {
            peer_fini(&w->extenders[i].verbs);
            peer_fini(&w->extenders[i].observers);
            program_kill(&w->extenders[i].program);
        }
    }
    sim_stop(&w->sim);
    buf_fini(&w->why);
    pthread_mutex_destroy(&w->lock);
}

START_TEST(the_holder_is_killed)
{
    struct world w;
    world_begin(&w);
    measure_from_here(&w);
    size_t i = holder(&w);
    program_signal(&w.extenders[i].program, SIGKILL);
    gone(&w, i);
    go_on(&w, 100);
    ck_assert_int_le(report(&w, "the holder is killed"), (LEASE_MS + 1000) * LIB_SLOWER);
    world_end(&w);
}
END_TEST

START_TEST(the_holder_stands_still_and_wakes)
{
    struct world w;
    world_begin(&w);
    measure_from_here(&w);
    size_t i = holder(&w);
    gone(&w, i);
    program_signal(&w.extenders[i].program, SIGSTOP);
    go_on(&w, 100);
    program_signal(&w.extenders[i].program, SIGCONT);
    atomic_store(&w.ended[i], false);
    go_on(&w, 100);
    /* A client that had asked the frozen one itself is not counted among those that
     * wait: it hangs until that wakes. */
    ck_assert_int_le(report(&w, "the holder stands still until another leads"),
                     (LEASE_MS + 1000) * LIB_SLOWER);
    world_end(&w);
}
END_TEST

static void stop_one(struct world *w, size_t i)
{
    program_signal(&w->extenders[i].program, SIGTERM);
    ck_assert_int_eq(program_wait(&w->extenders[i].program), 0);
    gone(w, i);
}

START_TEST(the_holder_is_stopped)
{
    struct world w;
    world_begin(&w);
    measure_from_here(&w);
    stop_one(&w, holder(&w));
    go_on(&w, 100);
    ck_assert_int_le(report(&w, "the holder is stopped"), 1000 * LIB_SLOWER);
    ck_assert_int_eq(atomic_load(&w.lost), 0);
    world_end(&w);
}
END_TEST

START_TEST(a_rolling_update_loses_no_call)
{
    struct world w;
    world_begin(&w);
    measure_from_here(&w);
    for (size_t i = 0; i < REPLICAS; i++) {
        add_replica(&w);
        stop_one(&w, i);
        go_on(&w, 50);
    }
    ck_assert_int_le(report(&w, "three replicas are replaced"), 1000 * LIB_SLOWER);
    ck_assert_int_eq(atomic_load(&w.lost), 0);
    world_end(&w);
}
END_TEST

START_TEST(what_was_handed_on_is_not_handed_on_again)
{
    struct world w = {0};
    cleanup_buf struct buf body = {0};
    sim_start(&w.sim, ARGV(NULL));
    sim_add_node(&w.sim, "n1", 1, 16);
    sim_add_pod(&w.sim, "p", 1);
    add_replica(&w);
    add_replica(&w);
    size_t i = holder(&w);
    struct extender *standby = &w.extenders[!i];
    lib_bind_body(&body, "p", "n1");
    struct httpc_request req = {.method = "POST",
                                .path = "/bind",
                                .content_type = "application/json",
                                .flag_header = "X-Gpushare-Forwarded",
                                .body = buf_span(&body),
                                .timeout_ms = PROGRAM_WAIT_MS};
    struct httpc_reply reply;
    struct err err = {0};
    int64_t begun = lib_now_ms();
    ck_assert_done(httpc_call(standby->verbs.http, &req, 1 << 16, &reply, &err), err);
    ck_assert_uint_eq(reply.status, 421);
    ck_assert_int_lt(lib_now_ms() - begun, 2000 * LIB_SLOWER);
    buf_addc(&reply.body, '\0');
    ck_assert_contains(reply.body.p, "is held by");
    httpc_reply_fini(&reply);
    ck_assert_int_eq(sim_bound(&w.sim), 0);
    /* The holder takes it, and so does the standby when it was not handed on before. */
    ck_assert_done(httpc_call(w.extenders[i].verbs.http, &req, 1 << 16, &reply, &err),
                   err);
    ck_assert_uint_eq(reply.status, 200);
    httpc_reply_fini(&reply);
    ck_assert(extender_bind(standby, "p", "n1", NULL));
    ck_assert_int_eq(sim_count(&w.sim, "create", "pods", "binding"), 1);
    for (size_t k = 0; k < 2; k++)
        extender_stop(&w.extenders[k]);
    sim_stop(&w.sim);
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

/* As many binds at a time as the holder takes connections, and one more of the test's. */
START_TEST(a_follower_leaves_connections_to_others)
{
    enum { CONNECTIONS = 8, BINDS = 2 * CONNECTIONS };
    struct sim s;
    struct extender e[2];
    struct one_bind binds[BINDS];
    cleanup_json json_t *j = NULL;
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 4, 16);
    extender_start(&e[0], &s, ARGV("--connections", "8"));
    lib_wait((json_decref(j), j = peer_json(&e[0].observers, "GET", "/inspect", NULL),
              json_is_true(json_object_get(j, "leader"))));
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
    /* At once, as kube-scheduler would ask the holder. */
    enum { OTHERS = CONNECTIONS - 5 }; /* four idle ones, and that of the test */
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

LIB_MAIN("replicas", 150, a_follower_leaves_connections_to_others,
         what_was_handed_on_is_not_handed_on_again, the_holder_is_killed,
         the_holder_stands_still_and_wakes, the_holder_is_stopped,
         a_rolling_update_loses_no_call)
