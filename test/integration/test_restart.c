/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "lib/raw.h"
#include "lib/sim.h"

/* Extenders that are killed, stopped and restarted. */

enum { PODS = 48 }; /* exactly as many as fit in the cluster */

struct fixture {
    struct sim sim;
    struct extender extender;
    _Atomic int bound; /* successful replies to bind */
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
    struct fixture *f;
    size_t i;
};

static void *bind_one(void *arg)
{
    struct client *c = arg;
    char name[16];
    snprintf(name, sizeof name, "p%02zu", c->i);
    cleanup_buf struct buf why = {0};
    while (!atomic_load(&c->f->give_up)) {
        if (extender_bind(&c->f->extender, name, node_of(c->i), &why)) {
            atomic_fetch_add(&c->f->bound, 1);
            break;
        }
        lib_pause();
    }
    free(c);
    return NULL;
}

static void start_clients(struct fixture *f)
{
    atomic_store(&f->give_up, false);
    for (size_t i = 0; i < PODS; i++) {
        struct client *c = xcalloc(1, sizeof *c);
        *c = (struct client){f, i};
        ck_assert_int_eq(pthread_create(&f->clients[i], NULL, bind_one, c), 0);
    }
}

static void join_clients(struct fixture *f)
{
    for (size_t i = 0; i < PODS; i++)
        pthread_join(f->clients[i], NULL);
}

static void set_up(struct fixture *f)
{
    *f = (struct fixture){0};
    sim_start(&f->sim, ARGV(NULL));
    add_objects(&f->sim);
}

static void tear_down(struct fixture *f)
{
    extender_stop(&f->extender);
    sim_stop(&f->sim);
}

/* -- SIGKILL -- */

/* Each round kills the extender once `after` Bindings have arrived at the API server. */
static const struct round {
    int after;
    const char *fault; /* how the Bindings fail, or NULL */
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

/* Waits for n Bindings. The extender must not end before. */
static void wait_for_bindings(struct fixture *f, int n)
{
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    while (sim_count(&f->sim, "create", "pods", "binding") < n) {
        bool good = program_runs(&f->extender.program) && lib_now_ms() < end;
        if (!good)
            puts(program_output(&f->extender.program)); /* Check's messages are short */
        ck_assert_msg(good, "got %d of %d Bindings",
                      sim_count(&f->sim, "create", "pods", "binding"), n);
        lib_pause();
    }
}

static void run_round(void *ctx, size_t i)
{
    const struct round *r = &rounds[i];
    struct fixture f;
    (void)ctx;
    set_up(&f);
    if (r->fault)
        sim_fault(&f.sim, "{\"subresource\":\"binding\",%s}", r->fault);
    extender_start(&f.extender, &f.sim, ARGV(NULL));
    start_clients(&f);
    wait_for_bindings(&f, r->after);
    program_signal(&f.extender.program, SIGKILL);
    atomic_store(&f.give_up, true);
    join_clients(&f);
    extender_kill(&f.extender);
    int bound_before = atomic_load(&f.bound);
    sim_no_faults(&f.sim); /* calls that hang keep hanging */

    struct extender next;
    extender_start(&next, &f.sim, ARGV(NULL));
    f.extender = next;
    start_clients(&f); /* for all pods, bound ones too */
    join_clients(&f);
    ck_assert_int_eq(atomic_load(&f.bound), bound_before + PODS);
    ck_assert_int_eq(sim_bound(&f.sim), PODS);
    oracle_agrees(&f.sim.api, &f.extender);
    tear_down(&f);
}

START_TEST(kill_during_binds_loses_no_promise)
{
    lib_threads(ARRAY_LEN(rounds), run_round, NULL);
}

/* -- SIGTERM -- */

START_TEST(a_stop_completes_binds_in_flight)
{
    struct fixture f;
    struct raw c[PODS];
    set_up(&f);
    extender_start(&f.extender, &f.sim, ARGV(NULL));
    /* The first bind makes sure that the extender has the lease. */
    ck_assert(extender_bind(&f.extender, "p00", node_of(0), NULL));
    sim_fault(&f.sim, "{\"subresource\":\"binding\",\"action\":\"hang\",\"hangMs\":%d}",
              2000);
    struct raw probe;
    struct raw_reply r = {0};
    raw_open(&probe, f.extender.observers.port);
    raw_call(&probe, &r, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
    ck_assert_uint_eq(r.status, 200);
    for (size_t i = 1; i < PODS; i++) {
        char name[16];
        cleanup_buf struct buf body = {0};
        snprintf(name, sizeof name, "p%02zu", i);
        lib_bind_body(&body, name, node_of(i));
        raw_open(&c[i], f.extender.verbs.port);
        ck_assert(raw_sendf(
            &c[i],
            "POST /bind HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            "Content-Length: %zu\r\n\r\n%s",
            body.n, body.p));
    }
    lib_wait(sim_count(&f.sim, "create", "pods", "binding") == PODS);
    program_signal(&f.extender.program, SIGTERM);
    /* readyz fails now, on connections that are still open. */
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
    ck_assert_int_eq(program_wait(&f.extender.program), 0);
    ck_assert_ptr_null(strstr(program_output(&f.extender.program), "are cut"));
    ck_assert_msg(unready, "readyz never reported the stop");
    extender_kill(&f.extender);
    ck_assert_int_eq(sim_bound(&f.sim), PODS);
    oracle_check(&f.sim.api);
    sim_stop(&f.sim);
}

LIB_MAIN("restart", 150, kill_during_binds_loses_no_promise,
         a_stop_completes_binds_in_flight)
