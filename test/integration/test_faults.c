/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/*
 * Each call that the extender makes fails once, in each way that there is. Afterwards the
 * extender lives, hears of everything, binds, and its ledger is what the annotations say.
 * Every case has its own programs; several run side by side, because most of a case is
 * waiting for a retry.
 */

enum { SIDE_BY_SIDE = 32 };

enum when {
    AT_START,    /* it is called anyway */
    NO_LEASE,    /* ... when there is no Lease */
    IN_BIND,     /* when a pod is bound */
    AFTER_BIND,  /* when a Binding got no answer */
    UNKNOWN_POD, /* when a pod is to be bound that the watch has not told of yet */
    ON_ROOM,     /* when a pod that others wait for leaves */
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
    {"list of maps", "\"verb\":\"list\",\"resource\":\"configmaps\"", AT_START, 1},
    {"watch of nodes", "\"verb\":\"watch\",\"resource\":\"nodes\"", AT_START, 1},
    {"watch of pods", "\"verb\":\"watch\",\"resource\":\"pods\"", AT_START, 1},
    {"watch of Scvs", "\"verb\":\"watch\",\"resource\":\"scvs\"", AT_START, 1},
    {"watch of heartbeats", "\"verb\":\"watch\",\"resource\":\"leases\"", AT_START, 1},
    {"watch of maps", "\"verb\":\"watch\",\"resource\":\"configmaps\"", AT_START, 1},
    {"get of the lease", "\"verb\":\"get\",\"resource\":\"leases\"", AT_START, 1},
    {"write of the lease", "\"verb\":\"patch\",\"resource\":\"leases\"", AT_START, 1},
    {"renewal", "\"verb\":\"patch\",\"resource\":\"leases\"", AT_START, 3},
    {"creation of a lease", "\"verb\":\"create\",\"resource\":\"leases\"", NO_LEASE, 1},
    {"Binding", "\"subresource\":\"binding\"", IN_BIND, 1},
    {"look at a pod", "\"verb\":\"get\",\"resource\":\"pods\"", AFTER_BIND, 1},
    {"look at a new pod", "\"verb\":\"get\",\"resource\":\"pods\"", UNKNOWN_POD, 1},
    {"patch of a node", "\"verb\":\"patch\",\"resource\":\"nodes\"", ON_ROOM, 1},
};

static const char *const ways[] = {
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

struct world {
    const struct call *call;
    const char *way;
    struct sim sim;
    struct extender extender;
};

static void add_fault(const struct world *w)
{
    sim_fault(&w->sim, "{%s,\"nth\":%d,%s}", w->call->match, w->call->nth, w->way);
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
    sim_add_pod(s, "waits", 16);
}

/* As kube-scheduler: again, until it is bound. */
static void bind_at_last(const struct world *w, const char *pod, const char *node)
{
    cleanup_buf struct buf why = {0};
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    while (!extender_bind(&w->extender, pod, node, &why))
        ck_assert_msg(lib_now_ms() < end, "%s, %s: %s never bound: %s", w->call->name,
                      w->way, pod, why.p);
}

/* Brings the call about. */
static void provoke(struct world *w)
{
    switch (w->call->when) {
    case AT_START:
    case NO_LEASE:
        break;
    case IN_BIND:
        add_fault(w);
        bind_at_last(w, "a", "n1");
        break;
    case AFTER_BIND:
        add_fault(w);
        sim_fault(&w->sim, "{\"subresource\":\"binding\",\"nth\":1,\"action\":\"cut\"}");
        bind_at_last(w, "a", "n1");
        break;
    case UNKNOWN_POD:
        sim_watches(&w->sim, "stall", "pods");
        sim_add_pod(&w->sim, "new", 1);
        add_fault(w);
        bind_at_last(w, "new", "n1");
        sim_watches(&w->sim, "release", "pods");
        break;
    case ON_ROOM:
        add_fault(w);
        sim_delete_pod(&w->sim, "leaves");
        break;
    }
}

/* A Node without an Scv: its capacity counts. */
static void add_plain_node(const struct sim *s, const char *name)
{
    sim_load(s,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"},"
             "\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"32\","
             "\"aliyun.com/gpu-count\":\"2\"},\"allocatable\":{\"aliyun.com/"
             "gpu-mem\":\"32\",\"aliyun.com/gpu-count\":\"2\"}}}",
             name);
}

/* Changes an object of each kind. */
static void make_news(const struct sim *s)
{
    sim_add_bound_pod(s, "late", 3, "n1", GO_PROMISE("1", "3"));
    sim_add_scv(s, "n2", 2, 8, -1);
    sim_load(s, "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":"
                "\"unhealthy-gpu-n2\",\"namespace\":\"kube-system\"},\"data\":{\"gpus\":"
                "\"1\"}}");
    add_plain_node(s, "n4");
    add_plain_node(s, "n5");
    sim_load(s, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                "\"metadata\":{\"name\":\"n5\",\"namespace\":"
                "\"nvidia-gpu-scheduler-node-lease\"},\"spec\":{}}");
}

static bool knows_the_news(const struct extender *e)
{
    cleanup_json json_t *all = peer_json(&e->observers, "GET", "/inspect", NULL);
    json_t *nodes = lib_at(all, "nodes");
    if (json_array_size(nodes) != 5)
        return false;
    json_t *n1 = lib_at(json_array_get(nodes, 0), "devs");
    json_t *n2 = lib_at(json_array_get(nodes, 1), "devs");
    json_t *n4 = json_array_get(nodes, 3), *n5 = json_array_get(nodes, 4);
    return json_integer_value(lib_at(json_array_get(n1, 1), "usedGPU")) == 3 &&
           json_integer_value(lib_at(json_array_get(n2, 0), "totalGPU")) == 8 &&
           strcmp(lib_str(json_array_get(n2, 1), "health"), "Excluded") == 0 &&
           strcmp(lib_str(n4, "source"), "capacity") == 0 &&
           strcmp(lib_str(n5, "source"), "none") == 0;
}

static void check_aftermath(struct world *w)
{
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    make_news(&w->sim);
    while (!knows_the_news(&w->extender)) {
        ck_assert_msg(lib_now_ms() < end, "%s, %s: has not heard of everything: %s",
                      w->call->name, w->way, program_output(&w->extender.program));
        lib_pause();
    }
    bind_at_last(w, "a", "n1");
    bind_at_last(w, "b", "n2");
    bind_at_last(w, "c", "n1");
    oracle_agrees(&w->sim.api, &w->extender);
    ck_assert(extender_ready(&w->extender));
}

/* kube-scheduler is told at last. */
static bool is_marked(const struct sim *s)
{
    cleanup_json json_t *node = peer_json(&s->api, "GET", "/api/v1/nodes/n3", NULL);
    return json_object_get(lib_at(node, "metadata.annotations"), "gpushare/room-since");
}

static void run_case(const struct call *call, const char *way)
{
    struct world w = {.call = call, .way = way};
    bool at_start = call->when == AT_START || call->when == NO_LEASE;
    cleanup_free char *name = xasprintf("kubeconfig-%p-%p", (void *)call, (void *)way);
    sim_start(&w.sim, ARGV(NULL));
    add_objects(&w.sim);
    if (call->when == NO_LEASE)
        json_decref(peer_json(&w.sim.api, "DELETE",
                              "/apis/coordination.k8s.io/v1/namespaces/kube-system/"
                              "leases/gpushare-extender",
                              NULL));
    if (at_start)
        add_fault(&w);
    cleanup_free char *path = lib_kubeconfig(name, "http", w.sim.api.port, "", "");
    extender_start_at(&w.extender, path, ARGV("--log-level", "debug"));
    extender_wait_ready(&w.extender);
    provoke(&w);
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    int wanted = call->when == AFTER_BIND ? 2 : 1;
    while (sim_fired(&w.sim) < wanted) {
        ck_assert_msg(lib_now_ms() < end, "%s, %s: never called: %s", call->name, way,
                      program_output(&w.extender.program));
        lib_pause();
    }
    sim_no_faults(&w.sim);
    check_aftermath(&w);
    if (call->when == ON_ROOM)
        lib_wait(is_marked(&w.sim));
    extender_stop(&w.extender);
    sim_stop(&w.sim);
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
    while ((at = atomic_fetch_add(&c->next, 1)) < c->n * ARRAY_LEN(ways))
        run_case(&c->calls[at / ARRAY_LEN(ways)], ways[at % ARRAY_LEN(ways)]);
}

static void run_cases(enum when from, enum when to)
{
    struct call chosen[ARRAY_LEN(calls)];
    struct cases c = {.calls = chosen};
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (calls[i].when >= from && calls[i].when <= to)
            chosen[c.n++] = calls[i];
    ck_assert_uint_gt(c.n, 0);
    lib_threads(SIDE_BY_SIDE, worker, &c);
}

START_TEST(lists_watches_and_the_lease_fail)
{
    run_cases(AT_START, NO_LEASE);
}

START_TEST(binds_and_what_comes_of_them_fail)
{
    run_cases(IN_BIND, ON_ROOM);
}

/* -- what is not known counts -- */

struct unknown {
    const char *way; /* what becomes of the Binding */
    bool applied;
    struct world w;
    bool bound;
    struct buf why;
};

static void *bind_first(void *arg)
{
    struct unknown *u = arg;
    u->bound = extender_bind(&u->w.extender, "first", "n1", &u->why);
    return NULL;
}

/* A Binding fills the card, and nobody can say whether it took effect: the watch is
 * silent and no pod can be looked at. Until that is known, the card is taken. */
static void run_unknown(struct unknown *u)
{
    pthread_t thread;
    cleanup_buf struct buf why = {0};
    struct sim *s = &u->w.sim;
    struct extender *e = &u->w.extender;
    sim_start(s, ARGV(NULL));
    sim_add_node(s, "n1", 1, 16);
    sim_add_pod(s, "first", 16);
    sim_add_pod(s, "second", 1);
    extender_start(e, s, ARGV(NULL));
    ck_assert_int_eq(extender_filter(e, 16, "n1", &why), FITS);
    sim_watches(s, "stall", "pods");
    sim_fault(s,
              "[{\"subresource\":\"binding\",\"nth\":1,%s},"
              "{\"verb\":\"get\",\"resource\":\"pods\",\"action\":\"answer\","
              "\"status\":503}]",
              u->way);
    ck_assert_int_eq(pthread_create(&thread, NULL, bind_first, u), 0);
    lib_wait(sim_fired(s) >= 2); /* the Binding, and a look at the pod */
    for (int i = 0; i < 3; i++) {
        int fired = sim_fired(s);
        ck_assert_int_eq(extender_filter(e, 1, "n1", &why), NOT_NOW);
        ck_assert(!extender_bind(e, "second", "n1", &why));
        ck_assert_contains(why.p, "no card of node n1 fits");
        lib_wait(sim_fired(s) > fired);
    }
    sim_no_faults(s);
    pthread_join(thread, NULL);
    ck_assert_msg(u->bound == u->applied, "%s: %s", u->way, u->why.p);
    sim_watches(s, "release", "pods");
    oracle_agrees(&s->api, e);
    ck_assert_int_eq(extender_bind(e, "second", "n1", &why), !u->applied);
    oracle_agrees(&s->api, e);
    extender_stop(e);
    sim_stop(s);
    buf_fini(&u->why);
}

static const struct unknown unknowns[] = {
    {.way = "\"action\":\"apply-cut\"", .applied = true},
    {.way = "\"action\":\"apply-answer\",\"status\":500", .applied = true},
    {.way = "\"action\":\"apply-answer\",\"status\":504", .applied = true},
    {.way = "\"action\":\"apply-answer\",\"status\":429", .applied = true},
    {.way = "\"action\":\"cut\""},
    {.way = "\"action\":\"answer\",\"status\":500"},
    {.way = "\"action\":\"hang-cut\",\"hangMs\":300"},
};

static void unknown_thread(void *ctx, size_t i)
{
    struct unknown u = unknowns[i];
    (void)ctx;
    run_unknown(&u);
}

START_TEST(what_is_not_known_counts)
{
    lib_threads(ARRAY_LEN(unknowns), unknown_thread, NULL);
}

LIB_MAIN("faults", 150, lists_watches_and_the_lease_fail,
         binds_and_what_comes_of_them_fail, what_is_not_known_counts)
