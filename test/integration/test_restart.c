/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "lib/raw.h"
#include "lib/sim.h"

/* Extenders that are killed, stopped and restarted. */

enum { PODS = 48 }; /* exactly as many as fit in the cluster */

struct fixture {
    struct sim sim;
    struct extender extender;
    _Atomic int bound; /* successful replies to bind */
    _Atomic bool give_up;
};

static char *pod_of(size_t i)
{
    return lib_fmt("p%02zu", i);
}

static const char *node_of(size_t i)
{
    return i % 3 ? "n2" : "n1"; /* 16 pods of 2 units to n1, 32 to n2 */
}

static void bind_one(void *ctx, size_t i)
{
    struct fixture *f = ctx;
    while (!atomic_load(&f->give_up)) {
        if (extender_bind(&f->extender, pod_of(i), node_of(i), NULL)) {
            atomic_fetch_add(&f->bound, 1);
            break;
        }
        lib_pause();
    }
}

static void *bind_all(void *ctx)
{
    lib_threads(PODS, bind_one, ctx);
    return NULL;
}

static void set_up(struct fixture *f)
{
    *f = (struct fixture){0};
    sim_start(&f->sim, NULL);
    sim_add_node(&f->sim, "n1", 2, 16);
    sim_add_node(&f->sim, "n2", 4, 16);
    for (size_t i = 0; i < PODS; i++)
        sim_add_pod(&f->sim, pod_of(i), 2);
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

static void run_round(void *ctx, size_t i)
{
    const struct round *r = &rounds[i];
    struct fixture f;
    pthread_t clients;
    (void)ctx;
    set_up(&f);
    if (r->fault)
        sim_fault(&f.sim, "{\"subresource\":\"binding\",%s}", r->fault);
    extender_start(&f.extender, &f.sim, NULL);
    ck_assert_int_eq(pthread_create(&clients, NULL, bind_all, &f), 0);
    lib_wait(sim_count(&f.sim, "create", "pods", "binding") >= r->after);
    ck_assert(program_runs(&f.extender.program));
    program_signal(&f.extender.program, SIGKILL);
    atomic_store(&f.give_up, true);
    pthread_join(clients, NULL);
    extender_kill(&f.extender);
    int bound_before = atomic_load(&f.bound);
    sim_no_faults(&f.sim); /* calls that hang keep hanging */

    extender_start(&f.extender, &f.sim, NULL);
    atomic_store(&f.give_up, false);
    bind_all(&f); /* all pods, bound ones too */
    ck_assert_int_eq(atomic_load(&f.bound), bound_before + PODS);
    ck_assert_int_eq(sim_bound(&f.sim), PODS);
    oracle_agrees(&f.sim.api, &f.extender);
    extender_stop(&f.extender);
    sim_stop(&f.sim);
}

TEST(kill_during_binds_loses_no_promise)
{
    lib_threads(ARRAY_LEN(rounds), run_round, NULL);
}

/* -- SIGTERM -- */

TEST(a_stop_completes_binds_in_flight)
{
    struct fixture f;
    struct raw c[PODS];
    set_up(&f);
    /* The probe has a second to see the stop before a drain closes idle connections. */
    extender_start(&f.extender, &f.sim, ARGV("--drain-delay", "1s"));
    /* The first bind makes sure that the extender has the lease. */
    ck_assert(extender_bind(&f.extender, pod_of(0), node_of(0), NULL));
    sim_fault(&f.sim,
              "{\"subresource\":\"binding\",\"action\":\"hang\",\"hangMs\":2500}");
    struct raw probe;
    struct raw_reply r = {0};
    raw_open(&probe, f.extender.observers.port);
    raw_call(&probe, &r, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
    ck_assert_uint_eq(r.status, 200);
    for (size_t i = 1; i < PODS; i++) {
        cleanup_buf struct buf body = {0};
        lib_bind_body(&body, pod_of(i), node_of(i));
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
    ck_assert_lacks(program_output(&f.extender.program), "are cut");
    ck_assert_msg(unready, "readyz never reported the stop");
    extender_kill(&f.extender);
    ck_assert_int_eq(sim_bound(&f.sim), PODS);
    oracle_check(&f.sim.api);
    sim_stop(&f.sim);
}

LIB_MAIN(150)
