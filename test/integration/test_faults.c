/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>

#include "lib/sim.h"

/*
 * Each API call of the extender fails once, in each possible way. Afterwards the
 * extender still runs, receives all changes, binds pods, and its ledger agrees with the
 * annotations. Every case has its own programs. Many cases run in parallel, because most
 * of a case is waiting for a retry.
 */

enum { PARALLEL_CASES = 32 };

enum when {
    AT_START,    /* the extender makes the call whenever it starts */
    NO_LEASE,    /* the same, if there is no Lease */
    IN_BIND,     /* a pod is bound */
    AFTER_BIND,  /* a Binding got no answer */
    UNKNOWN_POD, /* a pod is bound before the watch has delivered it */
    ON_WAKEUP,   /* a pod is deleted and a pending pod could use its memory */
};

static const struct call {
    const char *name, *match;
    enum when when;
    int nth;
} calls[] = {
    {"list of nodes", "\"verb\":\"list\",\"resource\":\"nodes\"", AT_START, 1},
    {"list of pods", "\"verb\":\"list\",\"resource\":\"pods\"", AT_START, 1},
    {"list of Scvs", "\"verb\":\"list\",\"resource\":\"scvs\"", AT_START, 1},
    {"list of heartbeats", "\"verb\":\"list\",\"resource\":\"leases\"", AT_START, 1},
    {"list of ConfigMaps", "\"verb\":\"list\",\"resource\":\"configmaps\"", AT_START, 1},
    {"watch of nodes", "\"verb\":\"watch\",\"resource\":\"nodes\"", AT_START, 1},
    {"watch of pods", "\"verb\":\"watch\",\"resource\":\"pods\"", AT_START, 1},
    {"watch of Scvs", "\"verb\":\"watch\",\"resource\":\"scvs\"", AT_START, 1},
    {"watch of heartbeats", "\"verb\":\"watch\",\"resource\":\"leases\"", AT_START, 1},
    {"watch of ConfigMaps", "\"verb\":\"watch\",\"resource\":\"configmaps\"", AT_START,
     1},
    {"get of the lease", "\"verb\":\"get\",\"resource\":\"leases\"", AT_START, 1},
    {"write of the lease", "\"verb\":\"patch\",\"resource\":\"leases\"", AT_START, 1},
    {"renewal", "\"verb\":\"patch\",\"resource\":\"leases\"", AT_START, 3},
    {"creation of a lease", "\"verb\":\"create\",\"resource\":\"leases\"", NO_LEASE, 1},
    {"Binding", "\"subresource\":\"binding\"", IN_BIND, 1},
    {"get of a pod", "\"verb\":\"get\",\"resource\":\"pods\"", AFTER_BIND, 1},
    {"get of an unknown pod", "\"verb\":\"get\",\"resource\":\"pods\"", UNKNOWN_POD, 1},
    {"patch of a node", "\"verb\":\"patch\",\"resource\":\"nodes\"", ON_WAKEUP, 1},
};

static const char *const failures[] = {
    "\"action\":\"answer\",\"status\":500",
    "\"action\":\"answer\",\"status\":503",
    "\"action\":\"answer\",\"status\":409",
    "\"action\":\"answer\",\"status\":410",
    "\"action\":\"answer\",\"status\":403",
    "\"action\":\"answer\",\"status\":429,\"retryAfter\":1",
    "\"action\":\"apply-answer\",\"status\":500",
    "\"action\":\"apply-answer\",\"status\":504",
    "\"action\":\"cut\"",
    "\"action\":\"apply-cut\"",
    "\"action\":\"hang\",\"hangMs\":300",
    "\"action\":\"hang-cut\",\"hangMs\":300",
};

struct fixture {
    const struct call *call;
    const char *failure;
    struct sim sim;
    struct extender extender;
};

static void add_fault(const struct fixture *f)
{
    sim_fault(&f->sim, "{%s,\"nth\":%d,%s}", f->call->match, f->call->nth, f->failure);
}

#define GO_PROMISE(card, units)                                                          \
    "{\"ALIYUN_COM_GPU_MEM_IDX\":\"" card "\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\","        \
    "\"ALIYUN_COM_GPU_MEM_POD\":\"" units "\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":"          \
    "\"true\",\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1637000000000000000\"}"

static void add_objects(const struct sim *s)
{
    sim_add_node(s, "n1", 2, 16);
    sim_add_node(s, "n2", 2, 16);
    sim_add_node(s, "n3", 1, 16);
    sim_add_bound_pod(s, "old", 7, "n1", GO_PROMISE("0", "7"));
    sim_add_bound_pod(s, "leaves", 16, "n3", GO_PROMISE("0", "16"));
    sim_add_pod(s, "a", 4);
    sim_add_pod(s, "b", 6);
    sim_add_pod(s, "c", 2);
    sim_add_pod(s, "pending", 16);
}

/* Repeats the bind until the pod is bound, as kube-scheduler does. */
static void bind_with_retries(const struct fixture *f, const char *pod, const char *node)
{
    cleanup_buf struct buf why = {0};
    lib_wait_saying(extender_bind(&f->extender, pod, node, &why),
                    "%s, %s: %s never bound: %s", f->call->name, f->failure, pod, why.p);
}

/* Makes the extender send the call. */
static void make_call(struct fixture *f)
{
    switch (f->call->when) {
    case AT_START:
    case NO_LEASE:
        break;
    case IN_BIND:
        add_fault(f);
        bind_with_retries(f, "a", "n1");
        break;
    case AFTER_BIND:
        add_fault(f);
        sim_fault(&f->sim, "{\"subresource\":\"binding\",\"nth\":1,\"action\":\"cut\"}");
        bind_with_retries(f, "a", "n1");
        break;
    case UNKNOWN_POD:
        sim_watches(&f->sim, "stall", "pods");
        sim_add_pod(&f->sim, "new", 1);
        add_fault(f);
        bind_with_retries(f, "new", "n1");
        sim_watches(&f->sim, "release", "pods");
        break;
    case ON_WAKEUP:
        add_fault(f);
        sim_delete_pod(&f->sim, "leaves");
        break;
    }
}

/* A Node without an Scv: the extender uses its capacity. */
#define PLAIN_NODE(name)                                                                 \
    "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"" name "\"},"     \
    "\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"32\","                           \
    "\"aliyun.com/gpu-count\":\"2\"},\"allocatable\":{\"aliyun.com/gpu-mem\":\"32\","    \
    "\"aliyun.com/gpu-count\":\"2\"}}}"

/* Changes an object of each kind. */
static void make_changes(const struct sim *s)
{
    sim_add_bound_pod(s, "late", 3, "n1", GO_PROMISE("1", "3"));
    sim_add_scv(s, "n2", 2, 8, -1);
    sim_load(s, "%s",
             "[{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":"
             "\"unhealthy-gpu-n2\",\"namespace\":\"kube-system\"},\"data\":{\"gpus\":"
             "\"1\"}}," PLAIN_NODE("n4") "," PLAIN_NODE(
                 "n5") ","
                       "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                       "\"metadata\":{\"name\":\"n5\",\"namespace\":"
                       "\"nvidia-gpu-scheduler-node-lease\"},\"spec\":{}}]");
}

static bool knows_all_changes(const struct extender *e)
{
    const json_t *all = peer_get(&e->observers, "/inspect");
    return lib_size(all, "nodes") == 5 && lib_int(all, "nodes.0.devs.1.usedGPU") == 3 &&
           lib_int(all, "nodes.1.devs.0.totalGPU") == 8 &&
           strcmp(lib_str(all, "nodes.1.devs.1.health"), "Excluded") == 0 &&
           strcmp(lib_str(all, "nodes.3.source"), "capacity") == 0 &&
           strcmp(lib_str(all, "nodes.4.source"), "none") == 0;
}

static void check_aftermath(struct fixture *f)
{
    make_changes(&f->sim);
    lib_wait_saying(knows_all_changes(&f->extender),
                    "%s, %s: does not know all changes: %s", f->call->name, f->failure,
                    program_output(&f->extender.program));
    bind_with_retries(f, "a", "n1");
    bind_with_retries(f, "b", "n2");
    bind_with_retries(f, "c", "n1");
    oracle_agrees(&f->sim.api, &f->extender);
    ck_assert(extender_ready(&f->extender));
}

/* Has the extender written the annotation that makes kube-scheduler retry pending
 * pods? */
static bool has_wakeup_annotation(const struct sim *s)
{
    return *lib_annotation(peer_get(&s->api, "/api/v1/nodes/n3"), "gpushare/room-since");
}

static void run_case(const struct call *call, const char *failure)
{
    struct fixture f = {.call = call, .failure = failure};
    bool at_start = call->when == AT_START || call->when == NO_LEASE;
    sim_start(&f.sim, NULL);
    add_objects(&f.sim);
    if (call->when == NO_LEASE)
        peer_do(&f.sim.api, "DELETE",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/"
                "leases/gpushare-extender",
                NULL);
    if (at_start)
        add_fault(&f);
    extender_start(&f.extender, &f.sim, ARGV("--log-level", "debug"));
    make_call(&f);
    lib_wait_saying(sim_fired(&f.sim) >= (call->when == AFTER_BIND ? 2 : 1),
                    "%s, %s: the call was never made: %s", call->name, failure,
                    program_output(&f.extender.program));
    sim_no_faults(&f.sim);
    check_aftermath(&f);
    if (call->when == ON_WAKEUP)
        lib_wait(has_wakeup_annotation(&f.sim));
    extender_stop(&f.extender);
    sim_stop(&f.sim);
}

struct cases {
    const struct call *calls;
    size_t n;
    _Atomic size_t next;
};

static void worker(void *ctx, size_t i)
{
    struct cases *c = ctx;
    size_t at;
    (void)i;
    while ((at = atomic_fetch_add(&c->next, 1)) < c->n * ARRAY_LEN(failures))
        run_case(&c->calls[at / ARRAY_LEN(failures)], failures[at % ARRAY_LEN(failures)]);
}

static void run_cases(enum when from, enum when to)
{
    struct call chosen[ARRAY_LEN(calls)];
    struct cases c = {.calls = chosen};
    array_items(p, calls)
        if (p->when >= from && p->when <= to)
            chosen[c.n++] = *p;
    ck_assert_uint_gt(c.n, 0);
    lib_threads(PARALLEL_CASES, worker, &c);
}

TEST(extender_recovers_from_failed_lists_watches_and_lease_calls)
{
    run_cases(AT_START, NO_LEASE);
}

TEST(extender_recovers_from_failed_calls_of_a_bind)
{
    run_cases(IN_BIND, ON_WAKEUP);
}

/* -- a Binding with an unknown outcome counts as bound -- */

struct unknown {
    const char *failure; /* of the Binding */
    bool applied, bound;
    struct sim sim;
    struct extender extender;
};

static void *bind_first(void *arg)
{
    struct unknown *u = arg;
    u->bound = extender_bind(&u->extender, "first", "n1", NULL);
    return NULL;
}

/* The first pod fills the card. While the watch is stalled and GETs of the pod fail, the
 * outcome of its Binding is unknown. */
static void run_unknown(struct unknown *u)
{
    pthread_t thread;
    cleanup_buf struct buf why = {0};
    struct sim *s = &u->sim;
    struct extender *e = &u->extender;
    sim_start(s, NULL);
    sim_add_node(s, "n1", 1, 16);
    sim_add_pod(s, "first", 16);
    sim_add_pod(s, "second", 1);
    extender_start(e, s, NULL);
    ck_assert_int_eq(extender_filter(e, 16, "n1", &why), FITS);
    sim_watches(s, "stall", "pods");
    sim_fault(s,
              "[{\"subresource\":\"binding\",\"nth\":1,%s},{\"verb\":\"get\","
              "\"resource\":\"pods\",\"action\":\"answer\",\"status\":503}]",
              u->failure);
    ck_assert_int_eq(pthread_create(&thread, NULL, bind_first, u), 0);
    lib_wait(sim_fired(s) >= 2); /* the Binding and a GET of the pod */
    for (int i = 0; i < 3; i++) {
        int fired = sim_fired(s);
        ck_assert_int_eq(extender_filter(e, 1, "n1", &why), NOT_NOW);
        ck_assert(!extender_bind(e, "second", "n1", &why));
        ck_assert_contains(why.p, "no card of node n1 fits");
        lib_wait(sim_fired(s) > fired);
    }
    sim_no_faults(s);
    pthread_join(thread, NULL);
    ck_assert_msg(u->bound == u->applied, "%s", u->failure);
    sim_watches(s, "release", "pods");
    oracle_agrees(&s->api, e);
    ck_assert_int_eq(extender_bind(e, "second", "n1", &why), !u->applied);
    extender_stop(e);
    sim_stop(s);
}

static const struct unknown unknowns[] = {
    {.failure = "\"action\":\"apply-cut\"", .applied = true},
    {.failure = "\"action\":\"apply-answer\",\"status\":500", .applied = true},
    {.failure = "\"action\":\"cut\""},
    {.failure = "\"action\":\"answer\",\"status\":500"}};

static void unknown_thread(void *ctx, size_t i)
{
    struct unknown u = unknowns[i];
    (void)ctx;
    run_unknown(&u);
}

TEST(a_binding_with_unknown_outcome_keeps_its_memory)
{
    lib_threads(ARRAY_LEN(unknowns), unknown_thread, NULL);
}

LIB_MAIN(150)
