/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/world.h"

/*
 * A bound pod counts for its raw limits, and for what its Binding promised, after a
 * restart of the extender: with a label or annotation that makes its request invalid,
 * with labels that were edited or removed. Each time a second pod must be rejected.
 */

/* One card of 16276 MiB. */
static void add_node(const struct sim *s, const char *name)
{
    sim_load(s,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"}}",
             name);
    sim_load(s,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"%s\"},\"status\":{\"cardList\":[{\"id\":0,\"health\":"
             "\"Healthy\",\"totalMemory\":16276,\"freeMemory\":16276,\"uuid\":"
             "\"GPU-%s\"}]}}",
             name, name);
}

/* Creates a pod and has it bound; it must be rejected. */
static void ck_rejected(const struct world *w, const char *node, const char *meta,
                        const char *spec)
{
    cleanup_buf struct buf why = {0};
    cleanup_free char *name = xasprintf("second-%s", node);
    world_add_pod(w, name, meta, spec);
    ck_assert_msg(!extender_bind(&w->extender, name, node, &why), "%s: bound", node);
    ck_assert_contains(why.p, "no card of node");
}

/* What users add to the metadata of a pod that the Go extender has bound. */
static const struct {
    const char *node, *labels, *annotations, *limits;
} flaws[] = {
    {"gpu-count", "\"aliyun.com/gpu-count\":\"3\"", "", ""},
    {"memory", "\"scv/memory\":\"8Gi\"", "", ""},
    {"placement", "", ",\"gpushare/placement\":\"best\"", ""},
    {"models", "", ",\"nvidia-gpu-scheduler/gpu.model\":\" , \"", ""},
    {"fraction", "", ",\"aliyun.com/gpu-count\":\"1.5\"", ""},
    {"nvidia", "", "", ",\"nvidia.com/gpu\":\"1\""},
};

START_TEST(a_takeover_from_the_go_extender_keeps_the_limits_of_invalid_pods)
{
    struct world w;
    sim_start(&w.sim, ARGV(NULL));
    for (size_t i = 0; i < ARRAY_LEN(flaws); i++) {
        cleanup_free char *meta = xasprintf(
            ",\"labels\":{%s},\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\","
            "\"ALIYUN_COM_GPU_MEM_POD\":\"8\",\"ALIYUN_COM_GPU_MEM_DEV\":\"15\","
            "\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\","
            "\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1\"%s}",
            flaws[i].labels, flaws[i].annotations);
        cleanup_free char *spec =
            xasprintf("\"nodeName\":\"%s\"," LIMITS("\"aliyun.com/gpu-mem\":\"8\"%s"),
                      flaws[i].node, flaws[i].limits);
        cleanup_free char *name = xasprintf("go-%s", flaws[i].node);
        add_node(&w.sim, flaws[i].node);
        world_add_pod(&w, name, meta, spec);
    }
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    for (size_t i = 0; i < ARRAY_LEN(flaws); i++) {
        ck_assert_msg(world_promised(&w, flaws[i].node, 0) == 8192, "%s", flaws[i].node);
        ck_rejected(&w, flaws[i].node, "", MEM("8"));
    }
    world_stop(&w);
}
END_TEST

START_TEST(a_label_added_after_the_bind_takes_nothing_off_the_card)
{
    struct world w;
    sim_start(&w.sim, ARGV(NULL));
    add_node(&w.sim, "n1");
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    world_add_pod(&w, "a", "",
                  MEM("5") ",\"initContainers\":[{\"name\":\"i\",\"image\":\"i\","
                           "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"8\"}}}]");
    world_bind(&w, "a", "n1");
    world_edit_pod(&w, "a", "\"labels\":{\"aliyun.com/gpu-count\":\"3\"}");
    world_restart(&w);
    ck_assert_int_eq(world_promised(&w, "n1", 0), 8192);
    ck_rejected(&w, "n1", "", MEM("8"));
    world_stop(&w);
}
END_TEST

START_TEST(a_whole_card_outlives_the_label_that_asked_for_it)
{
    struct world w;
    sim_start(&w.sim, ARGV(NULL));
    add_node(&w.sim, "n1");
    add_node(&w.sim, "n2");
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    world_add_pod(&w, "a", ",\"labels\":{\"scv/number\":\"1\"}", LIMITS(""));
    world_add_pod(&w, "b", ",\"labels\":{\"scv/memory\":\"15000\"}", LIMITS(""));
    world_bind(&w, "a", "n1");
    world_bind(&w, "b", "n2");
    world_edit_pod(&w, "a", "\"labels\":{\"scv/number\":null}");
    world_edit_pod(&w, "b", "\"labels\":{\"scv/memory\":\"8Gi\"}");
    world_restart(&w);
    ck_assert_int_eq(world_promised(&w, "n1", 0), 16276);
    ck_assert_int_eq(world_promised(&w, "n2", 0), 15000);
    ck_rejected(&w, "n1", ",\"labels\":{\"scv/memory\":\"900\"}", LIMITS(""));
    ck_rejected(&w, "n2", ",\"labels\":{\"scv/memory\":\"1277\"}", LIMITS(""));
    world_stop(&w);
}
END_TEST

START_TEST(a_label_edited_during_a_bind_that_fails_is_seen)
{
    struct world w;
    cleanup_buf struct buf why = {0};
    sim_start(&w.sim, ARGV(NULL));
    add_node(&w.sim, "n1");
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    world_add_pod(&w, "a", ",\"labels\":{\"scv/memory\":\"9000\"}", LIMITS(""));
    world_add_pod(&w, "b", ",\"labels\":{\"scv/memory\":\"9000\"}", LIMITS(""));
    world_bind(&w, "b", "n1");
    sim_delete_pod(&w.sim, "b"); /* the extender holds the Lease now */
    lib_wait(world_promised(&w, "n1", 0) == 0);
    /* The Binding is refused, and before the reservation ends the pod is edited. */
    sim_fault(&w.sim,
              "{\"subresource\":\"binding\",\"action\":\"answer\",\"status\":422}");
    ck_assert(!extender_bind(&w.extender, "a", "n1", &why));
    ck_assert_int_eq(world_promised(&w, "n1", 0), 9000);
    world_edit_pod(&w, "a", "\"labels\":{\"scv/memory\":\"500\"}");
    lib_wait(world_promised(&w, "n1", 0) == 0);
    sim_no_faults(&w.sim);
    world_bind(&w, "a", "n1");
    ck_assert_int_eq(world_promised(&w, "n1", 0), 500);
    world_stop(&w);
}
END_TEST

LIB_MAIN("bound", 60, a_takeover_from_the_go_extender_keeps_the_limits_of_invalid_pods,
         a_label_added_after_the_bind_takes_nothing_off_the_card,
         a_whole_card_outlives_the_label_that_asked_for_it,
         a_label_edited_during_a_bind_that_fails_is_seen)
