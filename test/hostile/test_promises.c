/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/world.h"

/*
 * What a namespace editor writes, and objects from which the ledger could count less than a
 * card really has promised: forged annotations, edits of bound pods, limits of other resources, a
 * node whose clock is behind. The amount of a pod is what its spec asks for and what its Binding
 * promised, also after a restart. core/test_forged.c and core/test_bound.c have further cases.
 */

#define IDX               "ALIYUN_COM_GPU_MEM_IDX"
#define ALLOCATION        "scheduler.framework.gpushare.allocation"
#define ANNOTATIONS(text) ",\"annotations\":{" text "}"
#define LABELS(text)      ",\"labels\":{" text "}"
#define ON(node)          "\"nodeName\":\"" node "\","
/* An annotation with an allocation on one card. */
#define ALLOCATED(card, units)                                                           \
    "\"" ALLOCATION "\":\"{\\\"0\\\":{\\\"" card "\\\":" units "}}\""

enum { CARD = 16276, CARDS = 2, UNITS = CARD / 1024, PROMISE = 8192 };
#define SIZED(id, more)                                                                  \
    "{\"id\":" #id                                                                       \
    ",\"health\":\"Healthy\",\"totalMemory\":16276,\"freeMemory\":16276" more "}"
#define GPU(id)   SIZED(id, ",\"uuid\":\"GPU-" #id "\"")
#define TWO_CARDS GPU(0) "," GPU(1)

/* Replaces the Scv. `more`: other members of its status, each after a comma. */
static void put_scv(const struct world *w, const char *node, const char *cards,
                    const char *more)
{
    sim_load(&w->sim,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"%s\"},\"status\":{\"cardList\":[%s]%s}}",
             node, cards, more);
}

/* Both its Scv and its Node, which come by different watches. */
static bool is_known(const struct world *w, const char *node)
{
    cleanup_free char *path = xasprintf("/inspect/%s", node);
    cleanup_buf struct buf reply = {0};
    return peer_call(&w->extender.observers, "GET", path, NULL, &reply) == 200 &&
           strstr(reply.p, "\"id\":0") && !strstr(reply.p, "no Node object");
}

/* `capacity`: of the Node's status. */
static void add_node(const struct world *w, const char *name, const char *capacity,
                     const char *cards)
{
    sim_load(&w->sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"},"
             "\"status\":{\"capacity\":{%s},\"allocatable\":{%s}}}",
             name, capacity, capacity);
    put_scv(w, name, cards, ",\"updateTime\":\"2020-01-01T00:00:00Z\"");
    lib_wait(is_known(w, name));
}

static void begin(struct world *w, const char *cards)
{
    world_start(w);
    add_node(w, "n1", "", cards);
}

static void add_bound(const struct world *w, const char *name, const char *meta,
                      const char *spec)
{
    world_add_running(w, name, meta, spec);
    world_bind(w, name, "n1");
}

static void edit(const struct world *w, const char *name, const char *annotations)
{
    cleanup_free char *meta = xasprintf("\"annotations\":{%s}", annotations);
    world_edit_pod(w, name, meta);
}

/* Creates a pod and has it bound; it must be rejected. */
static void ck_rejected(const struct world *w, const char *node, const char *meta,
                        const char *spec, const char *reason)
{
    static int n;
    cleanup_buf struct buf why = {0};
    cleanup_free char *name = xasprintf("second-%d", n++);
    world_add_pod(w, name, meta, spec);
    ck_assert_msg(!extender_bind(&w->extender, name, node, &why), "%s: bound", node);
    ck_assert_contains(why.p, reason);
}
#define NO_ROOM "no card of node"

/* The card of n1 shows the value at last. */
static bool is_shown(const struct world *w, size_t index, const char *field,
                     json_int_t value)
{
    cleanup_json json_t *j = extender_inspect(&w->extender, "n1");
    json_t *card = json_array_get(lib_at(j, "devs"), index);
    return json_integer_value(json_object_get(card, field)) == value;
}

static int64_t forged(const struct world *w)
{
    return extender_metric(&w->extender, "gpushare_drift{kind=\"forged\"}");
}

/* -- pods that were not bound by the extender -- */

/* kube-scheduler asks the extender about limits alone, so it binds pods with labels itself.
 * The quota does not see them, and no device plugin gives them a card. The kubelet ignores
 * limits of a resource that no device plugin of its node has; admission policies let the pod
 * name its node. */
static const struct {
    const char *node, *capacity, *meta, *limits;
    bool forged;
} takes_nothing[] = {
    {"allocated", "", ANNOTATIONS("\"" IDX "\":\"0\"," ALLOCATED("0", "15")), "", true},
    {"whole", "",
     ANNOTATIONS("\"" IDX "\":\"1\",\"gpushare/card-memory\":\"whole\","
                 "\"gpushare/card-uuid\":\"GPU-1\"," ALLOCATED("1", "15")),
     "\"cpu\":\"1\"", true},
    {"number", "", LABELS("\"scv/number\":\"1\""), "", false},
    {"memory", "", LABELS("\"scv/memory\":\"16000\""), "", false},
    {"both", "", LABELS("\"scv/number\":\"8\",\"scv/memory\":\"1000000\""), "", false},
    {"clock", "", LABELS("\"scv/clock\":\"1\""), "", false},
    {"nvidia", "\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/gpu-count\":\"2\"", "",
     "\"nvidia.com/gpu\":\"64\"", false},
    {"one-of-two", "\"nvidia.com/gpu\":\"1\"", "", "\"nvidia.com/gpu\":\"64\"", false},
};

TEST(a_pod_without_a_request_of_ours_takes_nothing)
{
    struct world w;
    int64_t differ = 0;
    world_start(&w);
    array_indices(i, takes_nothing) {
        const char *node = takes_nothing[i].node;
        cleanup_free char *name = xasprintf("tenant-%zu", i);
        cleanup_free char *spec =
            xasprintf(ON("%s") LIMITS("%s"), node, takes_nothing[i].limits);
        add_node(&w, node, takes_nothing[i].capacity, TWO_CARDS);
        world_add_running(&w, name, takes_nothing[i].meta, spec);
        differ += takes_nothing[i].forged;
    }
    lib_wait(forged(&w) == differ);
    world_restart(&w); /* the first list has the pods, so no bind can come before them */
    array_items(t, takes_nothing) {
        int n = world_fill(&w, t->node);
        /* The Node offers one card through nvidia.com/gpu, so one card can be that pod's. */
        int gib = strcmp(t->node, "one-of-two") == 0 ? UNITS : CARDS * UNITS;
        ck_assert_msg(n == gib, "%s: %d GiB", t->node, n);
    }
    world_stop(&w);
}

/* -- edits of bound pods -- */

TEST(edits_change_nothing_while_the_extender_runs_and_have_one_event)
{
    struct world w;
    begin(&w, TWO_CARDS);
    add_bound(&w, "a", "", MEM("8"));
    lib_wait(forged(&w) == 0);
    edit(&w, "a",
         "\"" IDX "\":\"1\",\"gpushare/card-uuid\":\"GPU-1\"," ALLOCATED("1", "999999"));
    lib_wait(sim_events(&w.sim, "a", "GPUPromiseDiffers", "999999 units") == 1);
    ck_assert_int_eq(sim_events(&w.sim, "a", "GPUPromiseDiffers", "asks for 8 GiB"), 1);
    ck_assert_int_eq(world_promised(&w, "n1", 0), PROMISE);
    ck_assert_int_eq(world_promised(&w, "n1", 1), 0);
    put_scv(&w, "n1", TWO_CARDS, ""); /* another scan of the same difference */
    lib_wait(forged(&w) == 1);
    ck_assert_int_eq(sim_events(&w.sim, "a", "GPUPromiseDiffers", ""), 1);
    world_stop(&w);
}

/* -- cards and nodes -- */

static void set_phase(const struct world *w, const char *phase)
{
    cleanup_free char *body = xasprintf("{\"status\":{\"phase\":\"%s\"}}", phase);
    json_decref(peer_json(&w->sim.api, "PATCH",
                          "/api/v1/namespaces/default/pods/a/status", body));
}

/* The Scv's time is years behind. 8 GiB are used by a process outside Kubernetes, and not
 * by the pod that has left, which ran when the extender started. */
TEST(a_departed_pod_does_not_hide_memory_in_use)
{
    struct world w;
    begin(&w, SIZED(0, ",\"usedMemory\":0,\"uuid\":\"GPU-0\""));
    add_bound(&w, "a", "", MEM("8"));
    set_phase(&w, "Running");
    world_restart(&w);
    set_phase(&w, "Succeeded"); /* the object stays, as that of a Job does */
    lib_wait(is_shown(&w, 0, "promisedMiB", 0));
    put_scv(&w, "n1",
            "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":16276,\"freeMemory\":8084,"
            "\"usedMemory\":8192,\"uuid\":\"GPU-0\"}",
            ",\"updateTime\":\"2020-01-01T00:01:00Z\"");
    lib_wait(is_shown(&w, 0, "usedMiB", PROMISE));
    ck_rejected(&w, "n1", "", MEM("12"), NO_ROOM);
    world_restart(&w);
    ck_rejected(&w, "n1", "", MEM("12"), NO_ROOM);
    world_stop(&w);
}

LIB_MAIN(120)
