/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/world.h"

/*
 * A namespace editor under the admission policies: what he can still create. No pod here
 * has an annotation of a promise, and none takes memory from others that his quota of
 * aliyun.com/gpu-mem and aliyun.com/gpu-count does not see.
 */

#define LABELS(text) ",\"labels\":{" text "}"

enum { CARD = 16276, CARDS = 2, UNITS = CARD / 1024 };

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
    world_start(&w);
    for (size_t i = 0; i < ARRAY_LEN(labeled); i++) {
        cleanup_free char *name = xasprintf("tenant-%zu", i);
        cleanup_free char *meta = xasprintf(LABELS("%s"), labeled[i].labels);
        cleanup_free char *spec =
            xasprintf("\"nodeName\":\"%s\"," LIMITS(""), labeled[i].node);
        add_node(&w, labeled[i].node, "");
        world_add_running(&w, name, meta, spec);
    }
    world_restart(&w); /* the first list has the pods, so no bind can come before them */
    for (size_t i = 0; i < ARRAY_LEN(labeled); i++) {
        int n = world_fill(&w, labeled[i].node);
        ck_assert_msg(n == CARDS * UNITS, "%s: %d GiB", labeled[i].labels, n);
    }
    world_stop(&w);
}
END_TEST

/* The kubelet ignores limits of a resource that no device plugin of its node has, so the
 * pod runs. Admission policies let it name its node. */
START_TEST(devices_that_the_node_does_not_have_take_no_card)
{
    struct world w;
    world_start(&w);
    add_node(&w, "n1", "\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/gpu-count\":\"2\"");
    add_node(&w, "n2", "\"nvidia.com/gpu\":\"1\"");
    world_add_running(&w, "tenant-1", "",
                      "\"nodeName\":\"n1\"," LIMITS("\"nvidia.com/gpu\":\"64\""));
    world_add_running(&w, "tenant-2", "",
                      "\"nodeName\":\"n2\"," LIMITS("\"nvidia.com/gpu\":\"64\""));
    world_restart(&w);
    ck_assert_int_eq(world_fill(&w, "n1"), CARDS * UNITS);
    ck_assert_int_eq(world_fill(&w, "n2"),
                     CARDS * UNITS); /* one of the two cards is left */
    world_stop(&w);
}
END_TEST

LIB_MAIN("tenant", 60, a_label_without_a_bind_of_the_extender_takes_nothing,
         devices_that_the_node_does_not_have_take_no_card)
