/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/*
 * Preemption with the calls of kube-scheduler, against the real extender and kube-sim.
 * Victims are proposed by the node's total, the extender adds the missing ones on one
 * card, the victims are deleted, and the pod is bound.
 */

struct fixture {
    struct sim sim;
    struct extender extender;
};

static void add_low(struct fixture *f, const char *name, int units, int card,
                    int priority)
{
    sim_load(&f->sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"default\",\"uid\":\"uid-%s\",\"annotations\":{"
             "\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\",\"ALIYUN_COM_GPU_MEM_POD\":\"%d\"}},"
             "\"spec\":{\"nodeName\":\"n1\","
             "\"priority\":%d,\"containers\":[{\"name\":\"c\",\"image\":\"i\","
             "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"}}}]},"
             "\"status\":{\"phase\":\"Running\"}}",
             name, name, card, units, priority, units);
}

/* Two cards of 16 units, each with pods of 5 and 7 units: 4 units are free on each. */
static void set_up(struct fixture *f)
{
    sim_start(&f->sim, ARGV(NULL));
    sim_add_node(&f->sim, "n1", 2, 16);
    add_low(f, "a5", 5, 0, 10);
    add_low(f, "a7", 7, 0, 20);
    add_low(f, "b5", 5, 1, 0);
    add_low(f, "b7", 7, 1, 30);
    sim_add_pod(&f->sim, "high", 12);
    extender_start(&f->extender, &f->sim, ARGV(NULL));
}

static void tear_down(struct fixture *f)
{
    extender_stop(&f->extender);
    sim_stop(&f->sim);
}

/* The pod requests `units` with priority 100; `victims` is a JSON array. */
static unsigned preempt(struct fixture *f, const char *path, int units,
                        const char *victims, struct buf *reply)
{
    cleanup_buf struct buf body = {0};
    buf_printf(&body,
               "{\"Pod\":{\"metadata\":{\"name\":\"high\",\"namespace\":\"default\","
               "\"uid\":\"uid-high\"},\"spec\":{\"priority\":100,\"containers\":[{"
               "\"name\":\"c\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":"
               "\"%d\"}}}]}},\"NodeNameToVictims\":null,\"NodeNameToMetaVictims\":{"
               "\"n1\":{\"Pods\":%s,\"NumPDBViolations\":1}}}",
               units, victims);
    return peer_call(&f->extender.verbs, "POST", path, body.p, reply);
}

static const char *victim(json_t *reply, size_t i)
{
    json_t *pods = json_object_get(
        json_object_get(lib_at(reply, "NodeNameToMetaVictims"), "n1"), "Pods");
    return lib_str(json_array_get(pods, i), "UID");
}

START_TEST(missing_victims_are_added_and_the_pod_is_bound)
{
    static const char *const paths[] = {"/gpushare-scheduler/preempt", "/preempt",
                                        "/apis/nvidia-gpu-scheduler/v1/schedule/preempt"};
    struct fixture f;
    cleanup_buf struct buf reply = {0}, why = {0};
    set_up(&f);
    /* The node lacks 4 units in total, and deleting b5 is the cheapest way to free them;
     * but only 9 units are free on its card then. Deleting b7 too would suffice, with
     * priority 30; a5 and a7 on the other card have at most 20. */
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        ck_assert_uint_eq(preempt(&f, paths[i], 12, "[{\"UID\":\"uid-b5\"}]", &reply),
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
    ck_assert_int_eq(extender_filter(&f.extender, 12, "n1", &why), NOT_NOW);
    sim_delete_pod(&f.sim, "a7");
    sim_delete_pod(&f.sim, "a5");
    sim_delete_pod(&f.sim, "b5");
    lib_wait(extender_filter(&f.extender, 12, "n1", NULL) == FITS);
    ck_assert_msg(extender_bind(&f.extender, "high", "n1", &why), "%s", why.p);
    oracle_agrees(&f.sim.api, &f.extender);
    tear_down(&f);
}
END_TEST

/* 8 units are free in total, 4 on each card. In kube-scheduler's dry run the pod fits
 * without victims, so kube-scheduler proposes none and does not call the extender. If it
 * did, the extender would name the victims. */
START_TEST(victims_are_named_if_memory_is_only_fragmented)
{
    struct fixture f;
    cleanup_buf struct buf reply = {0}, why = {0};
    set_up(&f);
    ck_assert_int_eq(extender_filter(&f.extender, 8, "n1", &why), NOT_NOW);
    ck_assert_contains(why.p, "needs 8192 MiB on one card; most free: 4096 of 16384 MiB");
    ck_assert_uint_eq(preempt(&f, "/preempt", 8, "[]", &reply), 200);
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    ck_assert_str_eq(victim(j, 0), "uid-b5");
    ck_assert_str_eq(victim(j, 1), "");
    tear_down(&f);
}
END_TEST

START_TEST(invalid_bodies_are_rejected)
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
    struct fixture f;
    set_up(&f);
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        cleanup_buf struct buf reply = {0};
        unsigned status =
            peer_call(&f.extender.verbs, "POST", "/preempt", bodies[i], &reply);
        ck_assert_msg(status == 400, "status %u for %s", status, bodies[i]);
        cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
        ck_assert_msg(*lib_str(j, "Error"), "no Error for %s", bodies[i]);
    }
    tear_down(&f);
}
END_TEST

LIB_MAIN("preempt", 60, missing_victims_are_added_and_the_pod_is_bound,
         victims_are_named_if_memory_is_only_fragmented, invalid_bodies_are_rejected)
