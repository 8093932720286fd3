/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

#include "base/rng.h"

/*
 * The sums of CPU, memory and pod slots of each node are a function of the objects that the
 * core was given, whatever their order: random pods and nodes come, change and go, in
 * watches, lists, lists that fail, and gaps between a watch and the next list. After every
 * input the sums are compared with those of a model that adds up its own copies.
 */

enum { NODES = 4, PODS = 24 };

struct copy {
    bool exists;
    int life;     /* part of the UID */
    int node;     /* -1: not bound */
    bool failed;  /* the phase */
    int gpu;      /* 0: none; 1: a limit; 2: a label */
    int cpu, mem; /* thousandths; bytes */
};

struct model {
    struct copy api[PODS];   /* as the API server has them */
    struct copy given[PODS]; /* as the core was given them */
    struct resources room[NODES];
    bool has_node[NODES];
};

static struct model m;
static struct rng rng;

static struct pod pod_of(int i)
{
    const struct copy *c = &m.api[i];
    cleanup_buf struct buf node = {0};
    if (c->node >= 0)
        buf_printf(&node, "'nodeName':'n%d',", c->node);
    struct span json = rig_text(
        "{'metadata':{'namespace':'default','name':'p%d','uid':'u%d-%d',%s},'spec':{%s"
        "'containers':[{'resources':{'requests':{'cpu':'%dm','memory':'%d'}%s}}]},"
        "'status':{'phase':'%s'}}",
        i, i, c->life, c->gpu == 2 ? "'labels':{'scv/memory':'100'}" : "'labels':{}",
        node.p ? node.p : "", c->cpu, c->mem,
        c->gpu == 1 ? ",'limits':{'" KEY_GPU_MEM "':'1'}" : "",
        c->failed ? "Failed" : "Running");
    return object_pod(&r.arena, json);
}

/* Does the pod count where it is? */
static bool counts(const struct copy *c, int node)
{
    return c->exists && !c->failed && c->node == node;
}

static void compare(void)
{
    const struct ledger *l = core_ledger(r.core);
    for (int n = 0; n < NODES; n++) {
        struct resources want = {0};
        for (int i = 0; i < PODS; i++)
            if (counts(&m.given[i], n))
                resources_add(&want,
                              &(struct resources){m.given[i].cpu, m.given[i].mem, 1});
        char name[16];
        snprintf(name, sizeof name, "n%d", n);
        const struct ledger_node *node = ledger_node_find(l, span_of(name));
        struct resources got = {0}, room = {0};
        if (!node && !m.has_node[n]) /* plain pods alone show no node; they count later */
            continue;
        if (node) {
            got = ledger_node_requested(node);
            room = ledger_node_allocatable(node);
            ck_assert_int_eq(node->cpu_free, room.cpu_milli - got.cpu_milli);
        }
        ck_assert_msg(resources_equal(&got, &want),
                      "%s: %lld m, %lld bytes, %lld pods; expected %lld, %lld, %lld",
                      name, (long long)got.cpu_milli, (long long)got.memory,
                      (long long)got.pods, (long long)want.cpu_milli,
                      (long long)want.memory, (long long)want.pods);
        const struct resources none = {0};
        ck_assert(resources_equal(&room, m.has_node[n] ? &m.room[n] : &none));
        ck_assert(node || (!m.has_node[n] && want.pods == 0));
    }
}

static void give(int i, bool deleted)
{
    rig_pod(pod_of(i), deleted);
    m.given[i] = m.api[i];
    if (deleted)
        m.given[i].exists = false;
    compare();
}

/* One change of a pod at the API server. True: it was deleted. */
static bool change(int i)
{
    struct copy *c = &m.api[i];
    switch (c->exists ? rng_below(&rng, 6) : 0) {
    case 0:
        if (c->exists || m.given[i].exists) /* one UID at a time */
            break;
        *c = (struct copy){.exists = true,
                           .life = c->life + 1,
                           .node = (int)rng_below(&rng, NODES + 1) - 1,
                           .gpu = (int)rng_below(&rng, 6) % 3,
                           .cpu = (int)rng_below(&rng, 4) * 250,
                           .mem = (int)rng_below(&rng, 3) << 20};
        break;
    case 1:
        if (c->node < 0)
            c->node = (int)rng_below(&rng, NODES);
        break;
    case 2: /* resized in place */
        c->cpu = (int)rng_below(&rng, 2000);
        break;
    case 3:
        if (c->gpu != 1)
            c->gpu = c->gpu ? 0 : 2;
        break;
    case 4:
        c->failed = rng_below(&rng, 3) == 0;
        break;
    default:
        c->exists = false;
        return true;
    }
    return false;
}

static void change_node(void)
{
    size_t n = rng_below(&rng, NODES);
    m.has_node[n] = rng_below(&rng, 4) != 0;
    m.room[n] = (struct resources){(int64_t)rng_below(&rng, 3) * 4000,
                                   (int64_t)rng_below(&rng, 3) << 30, 110};
    struct node node = object_node(
        &r.arena,
        rig_text("{'metadata':{'name':'n%zu'},'status':{'allocatable':{'cpu':'%lldm',"
                 "'memory':'%lld','pods':'110'}}}",
                 n, (long long)m.room[n].cpu_milli, (long long)m.room[n].memory));
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_NODES,
                                 .run = r.runs[CORE_NODES],
                                 .node = &node,
                                 .deleted = !m.has_node[n]});
    compare();
}

/* An object that cannot be decoded but for its UID: what was known of it stays. */
static void give_invalid(int i)
{
    struct pod pod = pod_of(i);
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_PODS,
                                 .run = r.runs[CORE_PODS],
                                 .pod = &pod,
                                 .invalid = true});
    compare();
}

/* Ends the list or watch of pods, and waits for the next one. */
static void next_run(struct core_input in)
{
    uint64_t run = r.runs[CORE_PODS];
    in.kind = CORE_PODS;
    in.run = run;
    rig_step(in);
    for (int s = 0; s < 100 && r.runs[CORE_PODS] == run; s++)
        rig_tick(1000);
    ck_assert_uint_ne(r.runs[CORE_PODS], run);
}

/* Delivers some of the list. */
static void list_pods(int n)
{
    for (int i = 0; i < n; i++) {
        if (!m.api[i].exists || m.api[i].failed)
            continue;
        if (m.given[i].exists && rng_below(&rng, 8) == 0)
            give_invalid(i);
        else
            give(i, false);
    }
}

/* The watch ends, and changes follow that only the next complete list shows. */
static void relist(void)
{
    struct err gone = {.code = ERR_GONE, .msg = "too old"};
    struct err timeout = {.code = ERR_TIMEOUT, .msg = "timeout"};
    next_run((struct core_input){.type = CORE_WATCH_ENDED, .err = &gone});
    for (size_t i = rng_below(&rng, 10); i > 0; i--)
        change((int)rng_below(&rng, PODS));
    while (rng_below(&rng, 3) == 0) {
        list_pods((int)rng_below(&rng, PODS));
        next_run((struct core_input){.type = CORE_LIST_FAILED, .err = &timeout});
        change((int)rng_below(&rng, PODS));
    }
    list_pods(PODS);
    next_run((struct core_input){.type = CORE_LIST_ENDED, .version = SPAN("100")});
    for (int i = 0; i < PODS; i++)
        if (!m.api[i].exists || m.api[i].failed)
            m.given[i].exists = false;
    compare();
}

static void run(uint64_t seed)
{
    rng_init(&rng, seed);
    m = (struct model){0};
    rig_start();
    rig_lead();
    rig_tick(1000);
    for (int step = 0; step < 400; step++) {
        int i = (int)rng_below(&rng, PODS);
        switch (rng_below(&rng, 12)) {
        case 0:
            change_node();
            break;
        case 1:
            relist();
            break;
        case 2:
            if (m.given[i].exists)
                give_invalid(i);
            break;
        default: {
            bool existed = m.api[i].exists, deleted = change(i);
            if (existed || m.api[i].exists)
                give(i, deleted || m.api[i].failed);
        }
        }
        rig_reset();
    }
}

TEST(sums_are_a_function_of_the_objects)
{
    for (uint64_t seed = 1; seed <= 25; seed++)
        run(seed);
}

/* Pods that the first watch event shows, at 24 bytes each plus slack. */
TEST(a_plain_pod_needs_few_bytes)
{
    struct ledger *l = ledger_new(&(struct ledger_settings){.unit_mib = 1}, 1);
    const struct resources small = {250, 1 << 28, 1};
    for (int i = 0; i < 40000; i++) {
        char uid[48], node[16];
        snprintf(uid, sizeof uid, "0b0dd2b4-b0a7-4a5c-8e30-%012d", i);
        snprintf(node, sizeof node, "n%d", i % 500);
        ledger_nongpu_seen(l, span_of(uid), span_of(node), &small, 1);
    }
    ck_assert_uint_eq(ledger_totals(l).nongpu_pods, 40000);
    ck_assert_uint_le(ledger_totals(l).nongpu_bytes, 40000 * 24 * 8 / 3);
    /* A node that only these pods name is not shown, and counts them once it exists. */
    ck_assert_ptr_null(ledger_node_find(l, SPAN("n7")));
    for (uint32_t i = 0; i < ledger_node_slots(l); i++)
        ck_assert_ptr_null(ledger_node_at(l, i));
    ledger_node_seen(l, &(struct node){.meta.name = SPAN("n7")}, 1);
    ck_assert_int_eq(ledger_node_requested(ledger_node_find(l, SPAN("n7"))).cpu_milli,
                     80 * 250);
    ledger_object_deleted(l, LEDGER_NODE, SPAN("n7"));
    ck_assert_ptr_null(ledger_node_find(l, SPAN("n7")));
    const struct ledger_node *left;
    for (size_t at = 0; ledger_nongpu_sweep(l, 2, &at, &left);)
        ck_assert_ptr_null(left);
    ck_assert_uint_eq(ledger_totals(l).nongpu_pods, 0);
    ck_assert_uint_eq(ledger_totals(l).nodes, 0);
    ck_assert_uint_le(ledger_totals(l).nongpu_bytes, 4096);
    ledger_free(l);
}

/* Amounts that no pod requests any more take no memory. */
TEST(former_amounts_are_forgotten)
{
    struct ledger *l = ledger_new(&(struct ledger_settings){.unit_mib = 1}, 1);
    ledger_node_seen(l, &(struct node){.meta.name = SPAN("n")}, 1);
    for (int i = 0; i < 100000; i++) {
        char uid[32], former[32];
        snprintf(uid, sizeof uid, "u%d", i);
        snprintf(former, sizeof former, "u%d", i - 10);
        ledger_nongpu_seen(l, span_of(uid), SPAN("n"), &(struct resources){i, i, 1}, 1);
        ledger_nongpu_deleted(l, span_of(former));
        ck_assert_int_eq(ledger_totals(l).nongpu_pods, i < 10 ? i + 1 : 10);
    }
    ck_assert_int_eq(ledger_node_requested(ledger_node_find(l, SPAN("n"))).cpu_milli,
                     10 * 99990 + 45);
    ck_assert_uint_le(ledger_totals(l).nongpu_bytes, 4096);
    ledger_free(l);
}
