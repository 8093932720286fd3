/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/* Preemption as kube-scheduler goes about it, with the program and kube-sim: victims are
 * proposed by the node's total, the extender adds those on one card, they are deleted,
 * and the pod is bound. */

struct world {
    struct sim sim;
    struct extender extender;
};

static void add_low(struct world *w, const char *name, int units, int card, int priority)
{
    sim_load(&w->sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"default\",\"uid\":\"uid-%s\",\"annotations\":{"
             "\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\",\"ALIYUN_COM_GPU_MEM_POD\":\"%d\"}},"
             "\"spec\":{\"nodeName\":\"n1\","
             "\"priority\":%d,\"containers\":[{\"name\":\"c\",\"image\":\"i\","
             "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"}}}]},"
             "\"status\":{\"phase\":\"Running\"}}",
             name, name, card, units, priority, units);
}

/* Two cards of 16 units, on each 5 and 7 of them taken: 4 are free on each. */
static void world_begin(struct world *w)
{
    sim_start(&w->sim, ARGV(NULL));
    sim_add_node(&w->sim, "n1", 2, 16);
    add_low(w, "a5", 5, 0, 10);
    add_low(w, "a7", 7, 0, 20);
    add_low(w, "b5", 5, 1, 0);
    add_low(w, "b7", 7, 1, 30);
    sim_add_pod(&w->sim, "high", 12);
    extender_start(&w->extender, &w->sim, ARGV(NULL));
}

static void world_end(struct world *w)
{
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

/* The pod asks for so many units with priority 100; `victims` is a JSON array. */
static unsigned preempt(struct world *w, const char *path, int units, const char *victims,
                        struct buf *reply)
{
    cleanup_buf struct buf body = {0};
    buf_printf(&body,
               "{\"Pod\":{\"metadata\":{\"name\":\"high\",\"namespace\":\"default\","
               "\"uid\":\"uid-high\"},\"spec\":{\"priority\":100,\"containers\":[{"
               "\"name\":\"c\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":"
               "\"%d\"}}}]}},\"NodeNameToVictims\":null,\"NodeNameToMetaVictims\":{"
               "\"n1\":{\"Pods\":%s,\"NumPDBViolations\":1}}}",
               units, victims);
    return peer_call(&w->extender.verbs, "POST", path, body.p, reply);
}

static const char *victim(json_t *reply, size_t i)
{
    json_t *pods = json_object_get(
        json_object_get(lib_at(reply, "NodeNameToMetaVictims"), "n1"), "Pods");
    return lib_str(json_array_get(pods, i), "UID");
}

START_TEST(victims_are_completed_deleted_and_replaced)
{
    static const char *const paths[] = {"/gpushare-scheduler/preempt", "/preempt",
                                        "/apis/nvidia-gpu-scheduler/v1/schedule/preempt"};
    struct world w;
    cleanup_buf struct buf reply = {0}, why = {0};
    world_begin(&w);
    /* The total lacks 4 units, and b5 is the cheapest for that; but it leaves 9 on its
     * card. b7 besides would do, of priority 30; a5 and a7 on the other card need 20. */
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        ck_assert_uint_eq(preempt(&w, paths[i], 12, "[{\"UID\":\"uid-b5\"}]", &reply),
                          200);
        cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
        ck_assert_str_eq(victim(j, 0), "uid-a7");
        ck_assert_str_eq(victim(j, 1), "uid-a5");
        ck_assert_str_eq(victim(j, 2), "uid-b5");
        ck_assert_str_eq(victim(j, 3), "");
        ck_assert_int_eq(json_integer_value(lib_at(
                             json_object_get(lib_at(j, "NodeNameToMetaVictims"), "n1"),
                             "NumPDBViolations")),
                         1);
    }
    ck_assert_int_eq(extender_filter(&w.extender, 12, "n1", &why), NOT_NOW);
    sim_delete_pod(&w.sim, "a7");
    sim_delete_pod(&w.sim, "a5");
    sim_delete_pod(&w.sim, "b5");
    lib_wait(extender_filter(&w.extender, 12, "n1", NULL) == FITS);
    ck_assert_msg(extender_bind(&w.extender, "high", "n1", &why), "%s", why.p);
    oracle_agrees(&w.sim.api, &w.extender);
    world_end(&w);
}
END_TEST

/* 8 units are free in total, and 4 on each card: kube-scheduler's dry run finds that the
 * pod fits without anybody leaving, proposes nobody, and does not even ask. Were it to
 * ask, it would be told whom it takes. */
START_TEST(when_only_the_layout_refuses_nobody_is_proposed)
{
    struct world w;
    cleanup_buf struct buf reply = {0}, why = {0};
    world_begin(&w);
    ck_assert_int_eq(extender_filter(&w.extender, 8, "n1", &why), NOT_NOW);
    ck_assert_contains(why.p, "needs 8192 MiB on one card; most free: 4096 of 16384 MiB");
    ck_assert_uint_eq(preempt(&w, "/preempt", 8, "[]", &reply), 200);
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    ck_assert_str_eq(victim(j, 0), "uid-b5");
    ck_assert_str_eq(victim(j, 1), "");
    world_end(&w);
}
END_TEST

START_TEST(bodies_that_mean_nothing_are_refused)
{
    static const char *const bodies[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"Pod\":{\"metadata\":{\"name\":\"p\"}}}",
        "{\"Pod\":{\"metadata\":{\"name\":\"p\"}},\"NodeNameToMetaVictims\":[]}",
        "{\"Pod\":{\"metadata\":{\"name\":\"p\"}},\"NodeNameToMetaVictims\":{\"n1\":{"
        "\"Pods\":[7]}}}",
        "{\"Pod\":{\"metadata\":{\"name\":\"p\"}},\"NodeNameToMetaVictims\":{\"n1\":{"
        "\"Pods\":[],\"NumPDBViolations\":1.5}}}",
        "{\"Pod\":{\"metadata\":{\"name\":\"p\"}},\"NodeNameToVictims\":{\"n1\":{"
        "\"Pods\":[{\"metadata\":{\"name\":\"q\"}}]}}}",
    };
    struct world w;
    world_begin(&w);
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        cleanup_buf struct buf reply = {0};
        unsigned status =
            peer_call(&w.extender.verbs, "POST", "/preempt", bodies[i], &reply);
        ck_assert_msg(status == 400, "%u for %s", status, bodies[i]);
        cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
        ck_assert_msg(*lib_str(j, "Error"), "no Error for %s", bodies[i]);
    }
    world_end(&w);
}
END_TEST

LIB_MAIN("preempt", 60, victims_are_completed_deleted_and_replaced,
         when_only_the_layout_refuses_nobody_is_proposed,
         bodies_that_mean_nothing_are_refused)
