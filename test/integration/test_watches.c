/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "integration/kit.h"

/*
 * What happens while nobody tells the extender: watches that are cut, end, stall, or come
 * too late, and lists from a cache that is behind. Afterwards filter and inspect are
 * right about everything that was missed.
 */

#define GO_PROMISE(card, units)                                                          \
    "{\"ALIYUN_COM_GPU_MEM_IDX\":\"" card "\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\","        \
    "\"ALIYUN_COM_GPU_MEM_POD\":\"" units "\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":"          \
    "\"true\",\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1637000000000000000\"}"

/* Each node has one change, and what a pod of 16 units is told before and after it. */
static const struct {
    const char *node;
    int cards;
    enum fit before, after;
    const char *reason; /* after */
} nodes[] = {
    {"bound-by-go", 1, FITS, NOT_NOW, "most free: 6144 of 16384 MiB on GPU0"},
    {"bound-by-others", 1, FITS, NOT_NOW, "most free: 12288 of 16384 MiB on GPU0"},
    {"bound-somewhere", 2, FITS, FITS, ""},
    {"healthy-again", 1, NOT_NOW, FITS, ""},
    {"map-deleted", 1, NOT_NOW, FITS, ""},
    {"map-made", 1, FITS, NOT_NOW, "GPU0"},
    {"pod-deleted", 2, NOT_NOW, FITS, ""},
    {"pod-ended", 2, NOT_NOW, FITS, ""},
    {"removed", 1, FITS, NOT_NOW, "nothing is known"},
    {"scv-deleted", 2, FITS, FITS, ""},
    {"scv-deleted-with-agent", 1, FITS, NOT_NOW, "the node's Scv object is missing"},
    {"shrunk", 1, FITS, NEVER, "the largest card has 8192 MiB"},
    {"unhealthy", 1, FITS, NOT_NOW, "unhealthy: GPU0"},
};

static void add_map(const struct sim *s, const char *node)
{
    sim_load(s,
             "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":"
             "\"unhealthy-gpu-%s\",\"namespace\":\"kube-system\"},\"data\":{\"gpus\":"
             "\"0\"}}",
             node);
}

static void delete (const struct sim *s, const char *path)
{
    json_decref(peer_json(&s->api, "DELETE", path, NULL));
}

#define SCVS "/apis/core.run-linux.com/v1/scvs/"
#define MAPS "/api/v1/namespaces/kube-system/configmaps/"

static void add_objects(const struct sim *s)
{
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
        sim_add_node(s, nodes[i].node, nodes[i].cards, 16);
    sim_add_bound_pod(s, "d0", 16, "pod-deleted", GO_PROMISE("0", "16"));
    sim_add_bound_pod(s, "d1", 16, "pod-deleted", GO_PROMISE("1", "16"));
    sim_add_bound_pod(s, "e0", 16, "pod-ended", GO_PROMISE("0", "16"));
    sim_add_bound_pod(s, "e1", 16, "pod-ended", GO_PROMISE("1", "16"));
    sim_add_pod(s, "g", 10);
    sim_add_pod(s, "o", 4);
    sim_add_scv(s, "healthy-again", 1, 16, 0);
    add_map(s, "map-deleted");
    sim_load(s, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                "\"metadata\":{\"name\":\"scv-deleted-with-agent\",\"namespace\":"
                "\"nvidia-gpu-scheduler-node-lease\"},\"spec\":{}}");
}

static void change_objects(const struct sim *s)
{
    sim_delete_pod(s, "d1");
    json_decref(peer_json(&s->api, "PATCH", "/api/v1/namespaces/default/pods/e0/status",
                          "{\"status\":{\"phase\":\"Succeeded\"}}"));
    sim_add_bound_pod(s, "g", 10, "bound-by-go", GO_PROMISE("0", "10"));
    sim_add_bound_pod(s, "o", 4, "bound-by-others", "{}");
    sim_add_bound_pod(s, "w", 4, "bound-somewhere", "{}"); /* never seen waiting */
    sim_add_scv(s, "shrunk", 1, 8, -1);
    sim_add_scv(s, "unhealthy", 1, 16, 0);
    sim_add_scv(s, "healthy-again", 1, 16, -1);
    add_map(s, "map-made");
    delete (s, MAPS "unhealthy-gpu-map-deleted");
    delete (s, SCVS "scv-deleted");
    delete (s, SCVS "scv-deleted-with-agent");
    delete (s, SCVS "removed");
    delete (s, "/api/v1/nodes/removed");
}

struct world {
    const char *way;
    struct sim sim;
    struct extender extender;
};

static void check_before(const struct world *w)
{
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        cleanup_buf struct buf why = {0};
        enum fit fit = extender_filter(&w->extender, 16, nodes[i].node, &why);
        ck_assert_msg(fit == nodes[i].before, "%s: %s at first: %d, %s", w->way,
                      nodes[i].node, (int)fit, why.p);
    }
}

static void check_after(const struct world *w)
{
    int64_t end = kit_now_ms() + PROGRAM_WAIT_MS;
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        cleanup_buf struct buf why = {0};
        enum fit fit = UNANSWERED;
        while (fit = extender_filter(&w->extender, 16, nodes[i].node, &why),
               fit != nodes[i].after || !strstr(why.p, nodes[i].reason)) {
            ck_assert_msg(kit_now_ms() < end, "%s: %s at last: %d, %s", w->way,
                          nodes[i].node, (int)fit, why.p);
            kit_pause();
        }
    }
    cleanup_json json_t *plain = extender_inspect(&w->extender, "scv-deleted");
    ck_assert_str_eq(kit_str(plain, "source"), "capacity");
    cleanup_json json_t *some = extender_inspect(&w->extender, "bound-somewhere");
    json_t *unplaced = json_array_get(kit_at(some, "unplaced"), 0);
    ck_assert_str_eq(kit_str(unplaced, "name"), "w");
    cleanup_json json_t *all = peer_json(&w->extender.observers, "GET", "/inspect", NULL);
    ck_assert_uint_eq(json_array_size(kit_at(all, "waiting")), 0);
    oracle_agrees(&w->sim.api, &w->extender);
}

/* And binds go by what is true now. */
static void check_binds(const struct world *w)
{
    cleanup_buf struct buf why = {0};
    sim_add_pod(&w->sim, "x", 16);
    ck_assert(!extender_bind(&w->extender, "x", "bound-by-go", &why));
    ck_assert_says(why.p, "no card of node bound-by-go fits");
    ck_assert(!extender_bind(&w->extender, "x", "map-made", &why));
    ck_assert_msg(extender_bind(&w->extender, "x", "pod-deleted", &why), "%s: %s", w->way,
                  why.p);
    oracle_agrees(&w->sim.api, &w->extender);
}

static void world_begin(struct world *w, const char *way)
{
    *w = (struct world){.way = way};
    sim_start(&w->sim, ARGV(NULL));
    add_objects(&w->sim);
    extender_start(&w->extender, &w->sim, ARGV(NULL));
    /* The first watches are open, so that they can be broken. */
    static const char *const kinds[] = {"nodes", "pods", "scvs", "leases", "configmaps"};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        kit_wait(sim_watching(&w->sim, kinds[i]) == 1);
    check_before(w);
}

static void world_end(struct world *w)
{
    check_after(w);
    check_binds(w);
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

static void compact(const struct sim *s)
{
    json_decref(peer_json(&s->api, "POST", "/kube-sim/compact", "{}"));
}

static void freeze(const struct sim *s)
{
    json_decref(peer_json(&s->api, "POST", "/kube-sim/freeze", "{}"));
}

static void told_at_once(struct world *w)
{
    change_objects(&w->sim);
}

static void cut(struct world *w)
{
    sim_watches(&w->sim, "cut", NULL);
    change_objects(&w->sim);
}

static void ended(struct world *w)
{
    sim_watches(&w->sim, "end", NULL);
    change_objects(&w->sim);
}

static void stalled(struct world *w)
{
    sim_watches(&w->sim, "stall", NULL);
    change_objects(&w->sim);
    check_before(w);
    sim_watches(&w->sim, "release", NULL);
}

/* Cut in the middle of events that were held back. */
static void stalled_and_cut(struct world *w)
{
    sim_watches(&w->sim, "stall", NULL);
    change_objects(&w->sim);
    sim_watches(&w->sim, "cut", NULL);
    check_before(w);
    sim_watches(&w->sim, "release", NULL);
}

/* No watch can be opened until the history is forgotten: 410, and everything is listed
 * anew. */
static void forgotten(struct world *w)
{
    int lists = sim_count(&w->sim, "list", "scvs", "");
    sim_fault(&w->sim, "{\"verb\":\"watch\",\"action\":\"answer\",\"status\":503}");
    sim_watches(&w->sim, "cut", NULL);
    change_objects(&w->sim);
    check_before(w);
    compact(&w->sim);
    sim_no_faults(&w->sim);
    kit_wait(sim_count(&w->sim, "list", "scvs", "") > lists);
}

/* The same, and a cache of the API server that has not seen the changes: who lists from
 * it would go back in time. */
static void forgotten_and_frozen(struct world *w)
{
    freeze(&w->sim);
    forgotten(w);
}

/* The same, and the first new lists break off. */
static void forgotten_and_lists_fail(struct world *w)
{
    sim_fault(&w->sim, "[{\"verb\":\"list\",\"nth\":1,\"times\":3,\"action\":\"cut\"},"
                       "{\"verb\":\"list\",\"nth\":4,\"times\":3,\"action\":\"answer\","
                       "\"status\":500}]");
    sim_fault(&w->sim, "{\"verb\":\"watch\",\"action\":\"answer\",\"status\":410}");
    sim_watches(&w->sim, "cut", NULL);
    change_objects(&w->sim);
    kit_wait(sim_fired(&w->sim) >= 8);
    sim_no_faults(&w->sim);
}

static const struct {
    const char *name;
    void (*run)(struct world *w);
} ways[] = {
    {"told at once", told_at_once},
    {"cut", cut},
    {"ended", ended},
    {"stalled", stalled},
    {"stalled and cut", stalled_and_cut},
    {"forgotten", forgotten},
    {"forgotten and frozen", forgotten_and_frozen},
    {"forgotten and lists fail", forgotten_and_lists_fail},
};

static void run_way(void *ctx, size_t i)
{
    struct world w;
    (void)ctx;
    world_begin(&w, ways[i].name);
    ways[i].run(&w);
    world_end(&w);
}

START_TEST(what_was_missed_is_known_afterwards)
{
    kit_threads(ARRAY_LEN(ways), run_way, NULL);
}

/* -- news and binds at the same time -- */

enum { PODS = 60 };

struct churn {
    struct sim sim;
    struct extender extender;
    _Atomic int left;
};

static void disturb(struct churn *c)
{
    static const char *const actions[] = {"cut", "end", "stall", "release"};
    for (size_t i = 0; atomic_load(&c->left) > 0; i++) {
        sim_watches(&c->sim, actions[i % 4], i % 3 ? "pods" : NULL);
        if (i % 5 == 0)
            compact(&c->sim);
        for (int k = 0; k < 10; k++)
            kit_pause();
    }
    sim_watches(&c->sim, "release", NULL);
}

/* A pod that comes, is bound and goes, while an other is bound by somebody else. */
static void come_and_go(struct churn *c, size_t i)
{
    char name[24], other[24];
    cleanup_buf struct buf why = {0};
    snprintf(name, sizeof name, "p%02zu", i);
    snprintf(other, sizeof other, "other%02zu", i);
    sim_add_pod(&c->sim, name, 2);
    int64_t end = kit_now_ms() + PROGRAM_WAIT_MS;
    while (!extender_bind(&c->extender, name, i % 2 ? "n1" : "n2", &why)) {
        ck_assert_msg(kit_now_ms() < end, "%s: %s", name, why.p);
        kit_pause();
    }
    if (i % 3 == 0)
        sim_delete_pod(&c->sim, name);
    else if (i % 3 == 1)
        sim_add_bound_pod(&c->sim, other, 1, "n3", GO_PROMISE("0", "1"));
    atomic_fetch_sub(&c->left, 1);
}

static void churn_thread(void *ctx, size_t i)
{
    if (i == PODS)
        disturb(ctx);
    else
        come_and_go(ctx, i);
}

START_TEST(binds_go_on_while_watches_break)
{
    struct churn c = {.left = PODS};
    sim_start(&c.sim, ARGV(NULL));
    sim_add_node(&c.sim, "n1", 4, 16);
    sim_add_node(&c.sim, "n2", 4, 16);
    sim_add_node(&c.sim, "n3", 1, 32);
    extender_start(&c.extender, &c.sim, ARGV(NULL));
    kit_threads(PODS + 1, churn_thread, &c);
    oracle_agrees(&c.sim.api, &c.extender);
    ck_assert_int_eq(sim_bound(&c.sim), PODS - PODS / 3 + PODS / 3);
    extender_stop(&c.extender);
    sim_stop(&c.sim);
}

enum { REFUSED_FOR_MS = 5000 };

/* Every list works and every watch is answered 410. */
START_TEST(watches_answered_410_do_not_list_at_full_speed)
{
    struct sim sim;
    struct extender extender;
    static const char *const kinds[] = {"nodes", "pods", "scvs", "leases", "configmaps"};
    sim_start(&sim, ARGV(NULL));
    sim_add_node(&sim, "n1", 1, 16);
    extender_start(&extender, &sim, ARGV(NULL));
    sim_fault(&sim, "{\"verb\":\"watch\",\"action\":\"answer\",\"status\":410}");
    sim_watches(&sim, "cut", NULL);
    int64_t end = kit_now_ms() + REFUSED_FOR_MS;
    while (kit_now_ms() < end)
        kit_pause();
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        int lists = sim_count(&sim, "list", kinds[i], "");
        ck_assert_msg(lists >= 2 && lists <= 8, "%d lists of %s", lists, kinds[i]);
    }
    extender_stop(&extender);
    sim_stop(&sim);
}

KIT_MAIN("watches", 150, what_was_missed_is_known_afterwards,
         binds_go_on_while_watches_break, watches_answered_410_do_not_list_at_full_speed)
