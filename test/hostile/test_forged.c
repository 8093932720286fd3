/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/world.h"

/*
 * Promises that tenants write. A namespace editor creates pods with any annotation, has
 * them bound without the extender, and edits the annotations of bound pods. The amount of
 * a pod is what its spec asks for, and the podList of the Scv has its cards.
 */

#define IDX               "ALIYUN_COM_GPU_MEM_IDX"
#define ALLOCATION        "scheduler.framework.gpushare.allocation"
#define ANNOTATIONS(text) ",\"annotations\":{" text "}"
/* An annotation with an allocation on one card. */
#define ALLOCATED(card, units)                                                           \
    "\"" ALLOCATION "\":\"{\\\"0\\\":{\\\"" card "\\\":" units "}}\""

enum { CARD = 16276, CARDS = 2, PROMISE = 8192 };

/* Replaces the Scv. `holder`: the pod of the podList; NULL: it is empty. */
static void put_scv(const struct world *w, const char *node, const char *holder, int card)
{
    cleanup_free char *item = xasprintf(
        "{\"namespace\":\"default\",\"name\":\"%s\",\"container\":\"c\",\"resource\":"
        "\"aliyun.com/gpu-mem\",\"units\":8,\"cards\":[\"GPU-%s-%d\"]}",
        holder ? holder : "", node, card);
    sim_load(&w->sim,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"%s\"},\"status\":{\"cardList\":["
             "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":%d,\"freeMemory\":%d,"
             "\"uuid\":\"GPU-%s-0\"},"
             "{\"id\":1,\"health\":\"Healthy\",\"totalMemory\":%d,\"freeMemory\":%d,"
             "\"uuid\":\"GPU-%s-1\"}],\"podList\":[%s]}}",
             node, CARD, CARD, node, CARD, CARD, node, holder ? item : "");
}

static void add_node(const struct world *w, const char *name)
{
    sim_load(&w->sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"}}",
             name);
    put_scv(w, name, NULL, 0);
    lib_wait(extender_filter(&w->extender, CARD / 1024, name, NULL) == FITS);
}

static void edit(const struct world *w, const char *name, const char *annotations)
{
    cleanup_free char *path = xasprintf("/api/v1/namespaces/default/pods/%s", name);
    cleanup_free char *body =
        xasprintf("{\"metadata\":{\"annotations\":{%s}}}", annotations);
    json_decref(peer_json(&w->sim.api, "PATCH", path, body));
}

static int64_t forged(const struct world *w)
{
    return extender_metric(&w->extender, "gpushare_drift{kind=\"forged\"}");
}

enum { UNITS = CARD / 1024 }; /* of a card */

START_TEST(a_pod_without_a_request_promises_nothing)
{
    struct world w;
    world_start(&w);
    add_node(&w, "n1");
    world_add_running(&w, "forger",
                      ANNOTATIONS("\"" IDX "\":\"0\"," ALLOCATED("0", "15")),
                      "\"nodeName\":\"n1\"," LIMITS(""));
    world_add_running(
        &w, "other",
        ANNOTATIONS("\"" IDX "\":\"1\",\"gpushare/card-memory\":\"whole\","
                    "\"gpushare/card-uuid\":\"GPU-n1-1\"," ALLOCATED("1", "15")),
        "\"nodeName\":\"n1\"," LIMITS("\"cpu\":\"1\""));
    lib_wait(forged(&w) == 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(world_promised(&w, "n1", 0), 0);
        ck_assert_int_eq(world_promised(&w, "n1", 1), 0);
        world_restart(&w);
    }
    ck_assert_int_eq(world_fill(&w, "n1"), CARDS * UNITS);
    world_stop(&w);
}
END_TEST

START_TEST(a_pod_has_what_it_asks_for_and_no_more)
{
    struct world w;
    world_start(&w);
    add_node(&w, "n1");
    world_add_running(
        &w, "forger",
        ANNOTATIONS("\"" IDX "\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":\"999999\"," ALLOCATED(
            "0", "999999")),
        "\"nodeName\":\"n1\"," MEM("1"));
    world_add_running(&w, "whole",
                      ANNOTATIONS("\"" IDX "\":\"1\"," ALLOCATED("1", "999999")),
                      "\"nodeName\":\"n1\"," LIMITS("\"aliyun.com/gpu-count\":\"1\""));
    world_add_running(&w, "honest", ANNOTATIONS("\"" IDX "\":\"0\"," ALLOCATED("0", "2")),
                      "\"nodeName\":\"n1\"," MEM("2"));
    lib_wait(world_promised(&w, "n1", 1) == CARD &&
             world_promised(&w, "n1", 0) == 3 * 1024);
    ck_assert_int_eq(forged(&w), 1); /* the size of a whole card is no claim */
    ck_assert_int_eq(world_fill(&w, "n1"), UNITS - 3);
    world_restart(&w);
    ck_assert_int_eq(world_promised(&w, "n1", 0), UNITS * 1024);
    world_stop(&w);
}
END_TEST

/* Edits of a bound pod with 8 GiB on GPU0. `known`: without the podList, the annotations
 * still say or leave open where it is. */
static const struct {
    const char *what, *annotations;
    bool known;
} edits[] = {
    {"index", "\"" IDX "\":\"1\"", true}, /* the allocation still says GPU0 */
    {"index removed", "\"" IDX "\":null", true},
    {"allocation", ALLOCATED("1", "8"), true}, /* the index still says GPU0 */
    {"allocation removed", "\"" ALLOCATION "\":null", true},
    {"smaller allocation", ALLOCATED("0", "1"), true},
    {"both removed", "\"" IDX "\":null,\"" ALLOCATION "\":null", true},
    {"all removed",
     "\"" IDX "\":null,\"" ALLOCATION "\":null,\"gpushare/card-uuid\":null,"
     "\"ALIYUN_COM_GPU_MEM_POD\":null,\"ALIYUN_COM_GPU_MEM_DEV\":null,"
     "\"ALIYUN_COM_GPU_MEM_ASSIGNED\":null,\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":null",
     true},
    {"damaged", "\"" IDX "\":\"x\",\"" ALLOCATION "\":\"{\"", true},
    {"shared with another card",
     "\"" IDX "\":\"0,1\",\"" ALLOCATION "\":\"{\\\"0\\\":{\\\"1\\\":7}}\"", true},
    {"missing card",
     "\"" IDX "\":\"63\",\"gpushare/card-uuid\":\"\"," ALLOCATED("63", "8"), true},
    {"small numbers",
     "\"ALIYUN_COM_GPU_MEM_POD\":\"0\",\"ALIYUN_COM_GPU_MEM_DEV\":\"0\","
     "\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"x\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"\"",
     true},
    {"foreign uuid", "\"gpushare/card-uuid\":\"GPU-x\"", false},
    {"moved",
     "\"" IDX "\":\"1\",\"gpushare/card-uuid\":\"GPU-n12-1\"," ALLOCATED("1", "8"),
     false},
    {"record of a label", "\"gpushare/card-memory\":\"1\"", true},
};

/* Binds a pod per edit to a node of its own, edits it, and restarts the extender. */
static void after_edits(struct world *w, bool with_pod_list)
{
    world_start(w);
    for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
        cleanup_free char *node = xasprintf("n%zu", i), *pod = xasprintf("p%zu", i);
        add_node(w, node);
        world_add_running(w, pod, "", MEM("8"));
        world_bind(w, pod, node);
        ck_assert_int_eq(world_promised(w, node, 0), PROMISE);
        if (with_pod_list)
            put_scv(w, node, pod, 0);
        edit(w, pod, edits[i].annotations);
    }
    world_restart(w);
}

START_TEST(the_pod_list_says_which_card_a_pod_uses)
{
    struct world w;
    after_edits(&w, true);
    for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
        cleanup_free char *node = xasprintf("n%zu", i);
        ck_assert_msg(world_promised(&w, node, 0) == PROMISE, "%s: %lld MiB",
                      edits[i].what, (long long)world_promised(&w, node, 0));
        int n = world_fill(&w, node);
        ck_assert_msg(n >= UNITS - 8 && n <= CARDS * UNITS - 8, "%s: %d GiB are free",
                      edits[i].what, n);
    }
    ck_assert_int_gt(forged(&w), 0);
    world_stop(&w);
}
END_TEST

START_TEST(without_a_pod_list_an_unknown_card_is_any_card)
{
    struct world w;
    after_edits(&w, false);
    for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
        cleanup_free char *node = xasprintf("n%zu", i);
        if (edits[i].known)
            ck_assert_msg(world_promised(&w, node, 0) >= PROMISE, "%s: %lld MiB",
                          edits[i].what, (long long)world_promised(&w, node, 0));
    }
    world_stop(&w);
}
END_TEST

START_TEST(edits_change_nothing_while_the_extender_runs)
{
    struct world w;
    world_start(&w);
    add_node(&w, "n1");
    world_add_running(&w, "a", "", MEM("8"));
    world_bind(&w, "a", "n1");
    lib_wait(forged(&w) == 0);
    edit(&w, "a",
         "\"" IDX "\":\"1\",\"gpushare/card-uuid\":\"GPU-n1-1\"," ALLOCATED("1", "8"));
    lib_wait(forged(&w) == 1);
    ck_assert_int_eq(world_promised(&w, "n1", 0), PROMISE);
    ck_assert_int_eq(world_promised(&w, "n1", 1), 0);
    world_stop(&w);
}
END_TEST

/* The number of Events GPUPromiseDiffers of the pod; the note of one. */
static int events(const struct world *w, const char *pod, char *note, size_t size)
{
    cleanup_json json_t *list = peer_json(
        &w->sim.api, "GET", "/apis/events.k8s.io/v1/namespaces/default/events", NULL);
    json_t *event;
    size_t i;
    int n = 0;
    json_array_foreach(lib_at(list, "items"), i, event)
    {
        if (strcmp(lib_str(event, "regarding.name"), pod) != 0 ||
            strcmp(lib_str(event, "reason"), "GPUPromiseDiffers") != 0)
            continue;
        snprintf(note, size, "%s", lib_str(event, "note"));
        n++;
    }
    return n;
}

START_TEST(a_forged_promise_has_one_event)
{
    struct world w;
    char note[1024];
    world_start(&w);
    add_node(&w, "n1");
    world_add_running(&w, "leader", "", MEM("1"));
    world_bind(&w, "leader", "n1");
    world_add_running(&w, "forger",
                      ANNOTATIONS("\"" IDX "\":\"0\"," ALLOCATED("0", "999999")),
                      "\"nodeName\":\"n1\"," MEM("1"));
    lib_wait(events(&w, "forger", note, sizeof note) == 1);
    ck_assert_contains(note, "999999 units");
    ck_assert_contains(note, "asks for 1 GiB");
    put_scv(&w, "n1", NULL, 0); /* another scan of the same difference */
    lib_wait(forged(&w) == 1);
    ck_assert_int_eq(events(&w, "forger", note, sizeof note), 1);
    world_stop(&w);
}
END_TEST

LIB_MAIN("forged", 60, a_pod_without_a_request_promises_nothing,
         a_pod_has_what_it_asks_for_and_no_more, the_pod_list_says_which_card_a_pod_uses,
         without_a_pod_list_an_unknown_card_is_any_card,
         edits_change_nothing_while_the_extender_runs, a_forged_promise_has_one_event)
