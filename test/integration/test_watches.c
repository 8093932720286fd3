/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sim.h"

/*
 * Changes that the extender's watches do not deliver in time: watches are closed, cut,
 * stalled or late, and lists come from a stale cache. Afterwards filter and inspect
 * reflect every change.
 */

#define GO_PROMISE(card, units)                                                          \
    "{\"ALIYUN_COM_GPU_MEM_IDX\":\"" card "\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\","        \
    "\"ALIYUN_COM_GPU_MEM_POD\":\"" units "\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":"          \
    "\"true\",\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1637000000000000000\"}"

/* Each node has one change, and the filter result for a pod of 16 units before and
 * after. */
static const struct {
    const char *node;
    int cards;
    enum filter_result before, after;
    const char *reason; /* after the change */
} nodes[] = {
    {"bound-by-go", 1, FITS, NOT_NOW, "most free: 6144 of 16384 MiB on GPU0"},
    {"bound-by-others", 1, FITS, NOT_NOW, "most free: 12288 of 16384 MiB on GPU0"},
    {"bound-somewhere", 2, FITS, NOT_NOW, "most free: 12288 of 16384 MiB on GPU0"},
    {"healthy-again", 1, NOT_NOW, FITS, ""},
    {"map-deleted", 1, NOT_NOW, FITS, ""},
    {"map-made", 1, FITS, NOT_NOW, "GPU0"},
    {"pod-deleted", 2, NOT_NOW, FITS, ""},
    {"pod-ended", 2, NOT_NOW, FITS, ""},
    {"removed", 1, FITS, NOT_NOW, "the GPUs of this node are not known"},
    {"scv-deleted", 2, FITS, FITS, ""},
    {"scv-deleted-with-agent", 1, FITS, NOT_NOW, "the node's Scv object is missing"},
    {"shrunk", 1, FITS, NEVER, "the largest card has 8192 MiB"},
    {"unhealthy", 1, FITS, NOT_NOW, "unhealthy: GPU0"},
};

static void add_config_map(const struct sim *s, const char *node)
{
    sim_load(s,
             "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":"
             "\"unhealthy-gpu-%s\",\"namespace\":\"kube-system\"},\"data\":{\"gpus\":"
             "\"0\"}}",
             node);
}

#define SCVS "/apis/core.run-linux.com/v1/scvs/"
#define MAPS "/api/v1/namespaces/kube-system/configmaps/"

static void add_objects(const struct sim *s)
{
    array_items(n, nodes)
        sim_add_node(s, n->node, n->cards, 16);
    sim_add_bound_pod(s, "d0", 16, "pod-deleted", GO_PROMISE("0", "16"));
    sim_add_bound_pod(s, "d1", 16, "pod-deleted", GO_PROMISE("1", "16"));
    sim_add_bound_pod(s, "e0", 16, "pod-ended", GO_PROMISE("0", "16"));
    sim_add_bound_pod(s, "e1", 16, "pod-ended", GO_PROMISE("1", "16"));
    sim_add_pod(s, "g", 10);
    sim_add_pod(s, "o", 4);
    sim_add_scv(s, "healthy-again", 1, 16, 0);
    add_config_map(s, "map-deleted");
    sim_load(s, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                "\"metadata\":{\"name\":\"scv-deleted-with-agent\",\"namespace\":"
                "\"nvidia-gpu-scheduler-node-lease\"},\"spec\":{}}");
}

static void change_objects(const struct sim *s)
{
    sim_delete_pod(s, "d1");
    peer_do(&s->api, "PATCH", "/api/v1/namespaces/default/pods/e0/status",
            "{\"status\":{\"phase\":\"Succeeded\"}}");
    sim_add_bound_pod(s, "g", 10, "bound-by-go", GO_PROMISE("0", "10"));
    sim_add_bound_pod(s, "o", 4, "bound-by-others", "{}");
    sim_add_bound_pod(s, "w", 4, "bound-somewhere", "{}"); /* never seen pending */
    sim_add_scv(s, "shrunk", 1, 8, -1);
    sim_add_scv(s, "unhealthy", 1, 16, 0);
    sim_add_scv(s, "healthy-again", 1, 16, -1);
    add_config_map(s, "map-made");
    static const char *const gone[] = {MAPS "unhealthy-gpu-map-deleted",
                                       SCVS "scv-deleted", SCVS "scv-deleted-with-agent",
                                       SCVS "removed", "/api/v1/nodes/removed"};
    array_items(g, gone)
        peer_do(&s->api, "DELETE", *g, NULL);
}

struct fixture {
    const char *name;
    struct sim sim;
    struct extender extender;
};

static void check_before(const struct fixture *f)
{
    array_items(n, nodes) {
        cleanup_buf struct buf why = {0};
        enum filter_result fit = extender_filter(&f->extender, 16, n->node, &why);
        ck_assert_msg(fit == n->before, "%s: %s before the change: %d, %s", f->name,
                      n->node, (int)fit, why.p);
    }
}

static void check_after(const struct fixture *f)
{
    array_items(n, nodes) {
        cleanup_buf struct buf why = {0};
        lib_wait_saying(extender_filter(&f->extender, 16, n->node, &why) == n->after &&
                            strstr(why.p, n->reason),
                        "%s: %s after the change: %s", f->name, n->node, why.p);
    }
    const struct peer *p = &f->extender.observers;
    ck_assert_at(peer_get(p, "/inspect/scv-deleted"), "nodes.0.source", "capacity");
    ck_assert_at(peer_get(p, "/inspect/bound-somewhere"), "nodes.0.unplaced.0.name", "w");
    ck_assert_uint_eq(lib_size(peer_get(p, "/inspect"), "pendingPods"), 0);
    oracle_agrees(&f->sim.api, &f->extender);
}

/* Binds use the new state as well. */
static void check_binds(const struct fixture *f)
{
    cleanup_buf struct buf why = {0};
    sim_add_pod(&f->sim, "x", 16);
    ck_assert(!extender_bind(&f->extender, "x", "bound-by-go", &why));
    ck_assert_contains(why.p, "no card of node bound-by-go fits");
    ck_assert(!extender_bind(&f->extender, "x", "map-made", &why));
    ck_assert_msg(extender_bind(&f->extender, "x", "pod-deleted", &why), "%s: %s",
                  f->name, why.p);
    oracle_agrees(&f->sim.api, &f->extender);
}

static void watched(struct fixture *f)
{
    change_objects(&f->sim);
}

static void cut(struct fixture *f)
{
    sim_watches(&f->sim, "cut", NULL);
    change_objects(&f->sim);
}

static void ended(struct fixture *f)
{
    sim_watches(&f->sim, "end", NULL);
    change_objects(&f->sim);
}

static void stalled(struct fixture *f)
{
    sim_watches(&f->sim, "stall", NULL);
    change_objects(&f->sim);
    check_before(f);
    sim_watches(&f->sim, "release", NULL);
}

/* The watches are cut while events are held back. */
static void stalled_and_cut(struct fixture *f)
{
    sim_watches(&f->sim, "stall", NULL);
    change_objects(&f->sim);
    sim_watches(&f->sim, "cut", NULL);
    check_before(f);
    sim_watches(&f->sim, "release", NULL);
}

/* No watch can be opened until the history is compacted. Then the watches get 410 Gone
 * and everything is listed again. */
static void compacted(struct fixture *f)
{
    int lists = sim_count(&f->sim, "list", "scvs", "");
    sim_fault(&f->sim, "{\"verb\":\"watch\",\"action\":\"answer\",\"status\":503}");
    sim_watches(&f->sim, "cut", NULL);
    change_objects(&f->sim);
    check_before(f);
    peer_do(&f->sim.api, "POST", "/kube-sim/compact", "{}");
    sim_no_faults(&f->sim);
    lib_wait(sim_count(&f->sim, "list", "scvs", "") > lists);
}

/* The same, with an API server whose cache lacks the changes: a list from this cache
 * would go back in time. */
static void compacted_and_frozen(struct fixture *f)
{
    peer_do(&f->sim.api, "POST", "/kube-sim/freeze", "{}");
    compacted(f);
}

/* The watches get 410 Gone, and the first lists fail. */
static void gone_and_lists_fail(struct fixture *f)
{
    sim_fault(&f->sim, "[{\"verb\":\"list\",\"nth\":1,\"times\":3,\"action\":\"cut\"},"
                       "{\"verb\":\"list\",\"nth\":4,\"times\":3,\"action\":\"answer\","
                       "\"status\":500}]");
    sim_fault(&f->sim, "{\"verb\":\"watch\",\"action\":\"answer\",\"status\":410}");
    sim_watches(&f->sim, "cut", NULL);
    change_objects(&f->sim);
    lib_wait(sim_fired(&f->sim) >= 8);
    sim_no_faults(&f->sim);
}

static const struct {
    const char *name;
    void (*run)(struct fixture *f);
} disruptions[] = {
    {"watched", watched},
    {"cut", cut},
    {"ended", ended},
    {"stalled", stalled},
    {"stalled and cut", stalled_and_cut},
    {"compacted", compacted},
    {"compacted and frozen", compacted_and_frozen},
    {"gone and lists fail", gone_and_lists_fail},
};

static void run_disruption(void *ctx, size_t i)
{
    struct fixture f = {.name = disruptions[i].name};
    (void)ctx;
    sim_start(&f.sim, NULL);
    add_objects(&f.sim);
    extender_start(&f.extender, &f.sim, NULL);
    /* Waits for the first watches, because the test breaks them. */
    static const char *const kinds[] = {"nodes", "pods", "scvs", "leases", "configmaps"};
    array_items(kind, kinds)
        lib_wait(sim_watching(&f.sim, *kind) == 1);
    check_before(&f);
    disruptions[i].run(&f);
    check_after(&f);
    check_binds(&f);
    ck_assert_msg(!strstr(program_output(&f.extender.program), "older state"),
                  "taken as a restore: %s", program_output(&f.extender.program));
    extender_stop(&f.extender);
    sim_stop(&f.sim);
}

TEST(missed_changes_are_recovered)
{
    lib_threads(ARRAY_LEN(disruptions), run_disruption, NULL);
}

/* -- compressed lists -- */

static int compressed(const struct sim *s)
{
    return (int)lib_int(peer_get(&s->api, "/kube-sim/state"), "compressed");
}

/* The lists of nodes and pods have some hundred KiB; the other lists stay below 128 KiB,
 * the size from which the API server compresses. */
TEST(compressed_lists_give_the_same_ledger)
{
    struct sim sim;
    struct extender gzipped, plain;
    sim_start(&sim, ARGV("--generate", "nodes=40,cards=4,pods=5,uuid=1,scvs=1"));
    extender_start(&gzipped, &sim, NULL);
    ck_assert_int_eq(compressed(&sim), 2);
    extender_start(&plain, &sim, ARGV("--api-compression=off"));
    ck_assert_int_eq(compressed(&sim), 2);
    const json_t *a = peer_get(&gzipped.observers, "/inspect"),
                 *b = peer_get(&plain.observers, "/inspect");
    ck_assert_uint_eq(lib_size(a, "nodes"), 40);
    ck_assert(json_equal(lib_at(a, "nodes"), lib_at(b, "nodes")));
    oracle_agrees(&sim.api, &gzipped);
    extender_stop(&plain);
    extender_stop(&gzipped);
    sim_stop(&sim);
}

LIB_MAIN(150)
