/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "lib/raw.h"
#include "lib/sim.h"

/* Extenders that are killed, stopped, started again, and several at a time. */

enum { PODS = 48 }; /* what the cluster takes is exactly that */

struct world {
    struct sim sim;
    struct extender extender;
    _Atomic int bound; /* pods that a client was told are bound */
    _Atomic bool give_up;
    pthread_t clients[PODS];
};

static void add_objects(const struct sim *s)
{
    sim_add_node(s, "n1", 2, 16);
    sim_add_node(s, "n2", 4, 16);
    for (int i = 0; i < PODS; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%02d", i);
        sim_add_pod(s, name, 2);
    }
}

static const char *node_of(size_t i)
{
    return i % 3 ? "n2" : "n1"; /* 16 pods of 2 units to n1, 32 to n2 */
}

struct client {
    struct world *w;
    size_t i;
};

static void *bind_one(void *arg)
{
    struct client *c = arg;
    char name[16];
    snprintf(name, sizeof name, "p%02zu", c->i);
    cleanup_buf struct buf why = {0};
    while (!atomic_load(&c->w->give_up)) {
        if (extender_bind(&c->w->extender, name, node_of(c->i), &why)) {
            atomic_fetch_add(&c->w->bound, 1);
            break;
        }
        lib_pause();
    }
    free(c);
    return NULL;
}

static void start_clients(struct world *w)
{
    atomic_store(&w->give_up, false);
    for (size_t i = 0; i < PODS; i++) {
        struct client *c = xcalloc(1, sizeof *c);
        *c = (struct client){w, i};
        ck_assert_int_eq(pthread_create(&w->clients[i], NULL, bind_one, c), 0);
    }
}

static void join_clients(struct world *w)
{
    for (size_t i = 0; i < PODS; i++)
        pthread_join(w->clients[i], NULL);
}

static void world_begin(struct world *w)
{
    *w = (struct world){0};
    sim_start(&w->sim, ARGV(NULL));
    add_objects(&w->sim);
}

static void world_end(struct world *w)
{
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

/* -- killed -- */

/* Where a round kills the extender: when so many Bindings have come in, and what the
 * server does with them. */
static const struct round {
    int after;
    const char *fault; /* of Bindings, or NULL */
} rounds[] = {
    {1, NULL},
    {13, NULL},
    {40, NULL},
    {24, "\"nth\":20,\"times\":100,\"action\":\"hang\",\"hangMs\":700"},
    {24, "\"nth\":20,\"times\":100,\"action\":\"hang\",\"hangMs\":2500"},
    {30, "\"nth\":10,\"times\":100,\"action\":\"apply-cut\""},
    {30, "\"nth\":10,\"times\":100,\"action\":\"hang-cut\",\"hangMs\":500"},
    {30, "\"nth\":10,\"times\":100,\"action\":\"apply-answer\",\"status\":500"},
};

/* Waits until so many Bindings have come in; the extender must live so long. */
static void wait_for_bindings(struct world *w, int n)
{
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    while (sim_count(&w->sim, "create", "pods", "binding") < n) {
        bool good = program_runs(&w->extender.program) && lib_now_ms() < end;
        if (!good)
            puts(program_output(&w->extender.program)); /* Check's messages are short */
        ck_assert_msg(good, "%d Bindings of %d",
                      sim_count(&w->sim, "create", "pods", "binding"), n);
        lib_pause();
    }
}

static void run_round(void *ctx, size_t i)
{
    const struct round *r = &rounds[i];
    struct world w;
    (void)ctx;
    world_begin(&w);
    if (r->fault)
        sim_fault(&w.sim, "{\"subresource\":\"binding\",%s}", r->fault);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    start_clients(&w);
    wait_for_bindings(&w, r->after);
    program_signal(&w.extender.program, SIGKILL);
    atomic_store(&w.give_up, true);
    join_clients(&w);
    extender_kill(&w.extender);
    int told = atomic_load(&w.bound);
    sim_no_faults(&w.sim); /* those that hang go on hanging */

    struct extender next;
    extender_start(&next, &w.sim, ARGV(NULL));
    w.extender = next;
    start_clients(&w); /* all pods again, also those that are bound */
    join_clients(&w);
    ck_assert_int_eq(atomic_load(&w.bound), told + PODS);
    ck_assert_int_eq(sim_bound(&w.sim), PODS);
    oracle_agrees(&w.sim.api, &w.extender);
    world_end(&w);
}

START_TEST(killed_in_the_middle_of_binds)
{
    lib_threads(ARRAY_LEN(rounds), run_round, NULL);
}

START_TEST(killed_again_and_again)
{
    struct world w;
    world_begin(&w);
    for (int k = 0; k < 2; k++) {
        extender_start(&w.extender, &w.sim, ARGV(NULL));
        oracle_agrees(&w.sim.api, &w.extender);
        start_clients(&w);
        lib_wait(sim_bound(&w.sim) > k * 15);
        program_signal(&w.extender.program, SIGKILL);
        atomic_store(&w.give_up, true);
        join_clients(&w);
        extender_kill(&w.extender);
        oracle_check(&w.sim.api);
    }
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    start_clients(&w);
    join_clients(&w);
    ck_assert_int_eq(sim_bound(&w.sim), PODS);
    oracle_agrees(&w.sim.api, &w.extender);
    world_end(&w);
}

/* -- stopped -- */

START_TEST(a_stop_finishes_what_is_in_flight)
{
    struct world w;
    struct raw c[PODS];
    world_begin(&w);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    /* A first one, so that the lease is held. */
    ck_assert(extender_bind(&w.extender, "p00", node_of(0), NULL));
    sim_fault(&w.sim, "{\"subresource\":\"binding\",\"action\":\"hang\",\"hangMs\":%d}",
              1500);
    struct raw probe;
    struct raw_reply r = {0};
    raw_open(&probe, w.extender.observers.port);
    raw_call(&probe, &r, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
    ck_assert_uint_eq(r.status, 200);
    for (size_t i = 1; i < PODS; i++) {
        char name[16];
        cleanup_buf struct buf body = {0};
        snprintf(name, sizeof name, "p%02zu", i);
        lib_bind_body(&body, name, node_of(i));
        raw_open(&c[i], w.extender.verbs.port);
        ck_assert(raw_sendf(&c[i],
                            "POST /bind HTTP/1.1\r\nHost: x\r\n"
                            "Content-Length: %zu\r\n\r\n%s",
                            body.n, body.p));
    }
    lib_wait(sim_count(&w.sim, "create", "pods", "binding") == PODS);
    program_signal(&w.extender.program, SIGTERM);
    /* Not ready any more, for those that still have a connection. */
    bool unready = false;
    while (!unready && raw_sendf(&probe, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n") &&
           raw_read(&probe, &r) == RAW_OK) {
        unready = r.status == 503;
        lib_pause();
    }
    if (unready)
        ck_assert_contains(r.body.p, "stopping");
    for (size_t i = 1; i < PODS; i++) {
        ck_assert_int_eq(raw_read(&c[i], &r), RAW_OK);
        ck_assert_uint_eq(r.status, 200);
        ck_assert_str_eq(r.body.p, "{\"Error\":\"\"}");
        raw_close(&c[i]);
    }
    raw_reply_fini(&r);
    raw_close(&probe);
    ck_assert_int_eq(program_wait(&w.extender.program), 0);
    ck_assert_ptr_null(strstr(program_output(&w.extender.program), "are cut"));
    ck_assert_msg(unready, "readyz never said that it stops");
    extender_kill(&w.extender);
    ck_assert_int_eq(sim_bound(&w.sim), PODS);
    oracle_check(&w.sim.api);
    sim_stop(&w.sim);
}

static void check_lease_is_free(const struct sim *s)
{
    cleanup_json json_t *lease =
        peer_json(&s->api, "GET",
                  "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"
                  "gpushare-extender",
                  NULL);
    ck_assert_str_eq(lib_str(lease, "spec.holderIdentity"), "");
}

static int64_t bind_ms(const struct extender *e, const char *pod, const char *node)
{
    int64_t start = lib_now_ms();
    cleanup_buf struct buf why = {0};
    ck_assert_msg(extender_bind(e, pod, node, &why), "%s", why.p);
    return lib_now_ms() - start;
}

/* A Binding that got no answer is looked after for some seconds, longer than giving the
 * lease back may take: all that time the stop waits. */
START_TEST(a_stop_waits_until_an_outcome_is_known)
{
    struct world w;
    struct raw c;
    struct raw_reply r = {0};
    cleanup_buf struct buf body = {0};
    world_begin(&w);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    ck_assert(extender_bind(&w.extender, "p00", "n1", NULL));
    sim_fault(&w.sim, "{\"subresource\":\"binding\",\"action\":\"cut\"}");
    lib_bind_body(&body, "p01", "n1");
    raw_open(&c, w.extender.verbs.port);
    raw_sendf(&c, "POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
              body.n, body.p);
    lib_wait(sim_fired(&w.sim) == 1);
    program_signal(&w.extender.program, SIGTERM);
    ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
    ck_assert_uint_eq(r.status, 200);
    ck_assert_contains(r.body.p, "the Binding has not taken effect");
    raw_reply_fini(&r);
    raw_close(&c);
    ck_assert_int_eq(program_wait(&w.extender.program), 0);
    ck_assert_ptr_null(strstr(w.extender.program.said.p, "the lease is not released"));
    check_lease_is_free(&w.sim);
    extender_kill(&w.extender);
    sim_stop(&w.sim);
}

START_TEST(a_stop_gives_the_lease_back)
{
    struct world w;
    world_begin(&w);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    bind_ms(&w.extender, "p00", "n1");
    extender_stop(&w.extender);
    check_lease_is_free(&w.sim);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    /* Much less than the five seconds after which a lease runs out. */
    ck_assert_int_lt(bind_ms(&w.extender, "p01", "n1"), 3000);
    oracle_agrees(&w.sim.api, &w.extender);
    world_end(&w);
}

START_TEST(a_stop_lets_one_that_waits_bind)
{
    struct world w;
    struct extender second;
    world_begin(&w);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    bind_ms(&w.extender, "p00", "n1");
    extender_start(&second, &w.sim, ARGV(NULL));
    extender_stop(&w.extender);
    ck_assert_int_lt(bind_ms(&second, "p01", "n1"), 3000);
    oracle_agrees(&w.sim.api, &second);
    extender_stop(&second);
    sim_stop(&w.sim);
}

/* -- two at a time -- */

static bool leads(const struct extender *e)
{
    cleanup_json json_t *j = peer_json(&e->observers, "GET", "/inspect", NULL);
    return json_is_true(lib_at(j, "leader"));
}

START_TEST(only_the_holder_of_the_lease_binds)
{
    struct world w;
    struct extender second;
    cleanup_buf struct buf why = {0};
    world_begin(&w);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    lib_wait(leads(&w.extender));
    extender_start(&second, &w.sim, ARGV(NULL));
    ck_assert(!leads(&second));
    ck_assert(extender_ready(&second));
    ck_assert_int_eq(extender_filter(&second, 2, "n1", &why), FITS);
    bind_ms(&w.extender, "p00", "n1");
    oracle_agrees(&w.sim.api, &second); /* it hears what the first does */
    /* Asked to bind, it has the first do it. */
    ck_assert_msg(extender_bind(&second, "p01", "n2", &why), "%s", why.p);
    ck_assert_contains(program_output(&w.extender.program), "pod=p01");
    ck_assert_ptr_null(strstr(program_output(&second.program), "pod=p01"));
    ck_assert_int_eq(sim_count(&w.sim, "create", "pods", "binding"), 2);
    ck_assert(leads(&w.extender) && !leads(&second));

    extender_kill(&w.extender);
    w.extender = second;
    start_clients(&w);
    join_clients(&w);
    ck_assert(leads(&w.extender));
    ck_assert_int_eq(sim_bound(&w.sim), PODS);
    oracle_agrees(&w.sim.api, &w.extender);
    world_end(&w);
}

struct pair {
    struct sim sim;
    struct extender e[2];
    _Atomic int bound;
};

/* Each pod is asked of both, again and again, as if two schedulers did not agree who
 * serves them. */
static void ask_both(void *ctx, size_t i)
{
    struct pair *p = ctx;
    char name[16];
    snprintf(name, sizeof name, "p%02zu", i % PODS);
    for (int k = 0; k < 100; k++) {
        if (extender_bind(&p->e[(i + (size_t)k) % 2], name, node_of(i % PODS), NULL)) {
            atomic_fetch_add(&p->bound, 1);
            return;
        }
        lib_pause();
    }
}

START_TEST(two_that_are_asked_alike_promise_nothing_twice)
{
    struct pair p = {0};
    sim_start(&p.sim, ARGV(NULL));
    add_objects(&p.sim);
    extender_start(&p.e[0], &p.sim, ARGV(NULL));
    extender_start(&p.e[1], &p.sim, ARGV(NULL));
    lib_threads(2 * PODS, ask_both, &p);
    ck_assert_int_eq(atomic_load(&p.bound), 2 * PODS);
    ck_assert_int_eq(sim_bound(&p.sim), PODS);
    oracle_agrees(&p.sim.api, &p.e[0]);
    oracle_agrees(&p.sim.api, &p.e[1]);
    extender_stop(&p.e[0]);
    extender_stop(&p.e[1]);
    sim_stop(&p.sim);
}

LIB_MAIN("restart", 150, killed_in_the_middle_of_binds, killed_again_and_again,
         a_stop_finishes_what_is_in_flight, a_stop_waits_until_an_outcome_is_known,
         a_stop_gives_the_lease_back, a_stop_lets_one_that_waits_bind,
         only_the_holder_of_the_lease_binds,
         two_that_are_asked_alike_promise_nothing_twice)
