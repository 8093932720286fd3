/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/*
 * A namespace editor under the admission policies: what he can still create. No pod here
 * has an annotation of a promise, and none takes memory from others that his quota of
 * aliyun.com/gpu-mem and aliyun.com/gpu-count does not see.
 */

#define LIMITS(text)                                                                     \
    "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{" text   \
    "}}}]"
#define MEM(n)       LIMITS("\"aliyun.com/gpu-mem\":\"" n "\"")
#define LABELS(text) ",\"labels\":{" text "}"

enum { CARD = 16276, CARDS = 2, UNITS = CARD / 1024 };

struct world {
    struct sim sim;
    struct extender extender;
};

static void start(struct world *w)
{
    sim_start(&w->sim, ARGV(NULL));
    extender_start(&w->extender, &w->sim, ARGV(NULL));
}

static void restart(struct world *w)
{
    extender_kill(&w->extender);
    extender_start(&w->extender, &w->sim, ARGV(NULL));
}

static void end(struct world *w)
{
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

static bool is_known(const struct world *w, const char *node)
{
    cleanup_free char *path = xasprintf("/inspect/%s", node);
    cleanup_buf struct buf reply = {0};
    return peer_call(&w->extender.observers, "GET", path, NULL, &reply) == 200 &&
           strstr(reply.p, "\"id\":1");
}

/* `capacity`: of the Node's status. */
static void add_node(const struct world *w, const char *name, const char *capacity)
{
    sim_load(&w->sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"},"
             "\"status\":{\"capacity\":{%s},\"allocatable\":{%s}}}",
             name, capacity, capacity);
    sim_load(&w->sim,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"%s\"},\"status\":{\"cardList\":["
             "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":%d,\"freeMemory\":%d,"
             "\"uuid\":\"GPU-%s-0\"},"
             "{\"id\":1,\"health\":\"Healthy\",\"totalMemory\":%d,\"freeMemory\":%d,"
             "\"uuid\":\"GPU-%s-1\"}]}}",
             name, CARD, CARD, name, CARD, CARD, name);
    lib_wait(is_known(w, name));
}

static void add_pod(const struct world *w, const char *name, const char *meta,
                    const char *spec)
{
    sim_load(&w->sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"default\",\"uid\":\"uid-%s\"%s},\"spec\":{%s},\"status\":{"
             "\"phase\":\"Running\"}}",
             name, name, meta, spec);
}

static bool is_bound(const struct world *w, const char *name, const char *node)
{
    cleanup_buf struct buf why = {0};
    return extender_bind(&w->extender, name, node, &why);
}

/* Fills the node with pods of 1 GiB, and returns how many it takes. */
static int fill(const struct world *w, const char *node)
{
    for (int n = 0;; n++) {
        cleanup_free char *name = xasprintf("fill-%s-%d", node, n);
        add_pod(w, name, "", MEM("1"));
        if (!is_bound(w, name, node))
            return n;
    }
}

/* kube-scheduler asks the extender about limits alone, so it binds these pods itself. The
 * quota does not see them, and no device plugin gives them a card. */
static const struct {
    const char *node, *labels;
} labeled[] = {
    {"n1", "\"scv/number\":\"1\""},
    {"n2", "\"scv/memory\":\"16000\""},
    {"n3", "\"scv/number\":\"8\",\"scv/memory\":\"1000000\""},
    {"n4", "\"scv/clock\":\"1\""},
};

START_TEST(a_label_without_a_bind_of_the_extender_takes_nothing)
{
    struct world w;
    start(&w);
    for (size_t i = 0; i < ARRAY_LEN(labeled); i++) {
        cleanup_free char *name = xasprintf("tenant-%zu", i);
        cleanup_free char *meta = xasprintf(LABELS("%s"), labeled[i].labels);
        cleanup_free char *spec =
            xasprintf("\"nodeName\":\"%s\"," LIMITS(""), labeled[i].node);
        add_node(&w, labeled[i].node, "");
        add_pod(&w, name, meta, spec);
    }
    restart(&w); /* the first list has the pods, so no bind can come before them */
    for (size_t i = 0; i < ARRAY_LEN(labeled); i++) {
        int n = fill(&w, labeled[i].node);
        ck_assert_msg(n == CARDS * UNITS, "%s: %d GiB", labeled[i].labels, n);
    }
    end(&w);
}
END_TEST

/* The kubelet ignores limits of a resource that no device plugin of its node has, so the
 * pod runs. Admission policies let it name its node. */
START_TEST(devices_that_the_node_does_not_have_take_no_card)
{
    struct world w;
    start(&w);
    add_node(&w, "n1", "\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/gpu-count\":\"2\"");
    add_node(&w, "n2", "\"nvidia.com/gpu\":\"1\"");
    add_pod(&w, "tenant-1", "",
            "\"nodeName\":\"n1\"," LIMITS("\"nvidia.com/gpu\":\"64\""));
    add_pod(&w, "tenant-2", "",
            "\"nodeName\":\"n2\"," LIMITS("\"nvidia.com/gpu\":\"64\""));
    restart(&w);
    ck_assert_int_eq(fill(&w, "n1"), CARDS * UNITS);
    ck_assert_int_eq(fill(&w, "n2"), CARDS * UNITS); /* one of the two cards is left */
    end(&w);
}
END_TEST

LIB_MAIN("tenant", 60, a_label_without_a_bind_of_the_extender_takes_nothing,
         devices_that_the_node_does_not_have_take_no_card)
