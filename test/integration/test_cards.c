/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib/sim.h"

/*
 * Which card a promise counts on, when objects are odd: UUIDs that were copied, that
 * appear later or that two cards share, nodes whose clock is wrong, and Nodes that are
 * gone. Each case promised a card twice before it had a rule.
 */

enum { TOTAL_MIB = 16384 };

/* An Scv of cards of 16 GiB; `cards` is a list of JSON objects, without the sizes. */
static void load_scv(const struct sim *s, const char *node, const char *time,
                     const char *cards)
{
    cleanup_json json_t *list = json_loads(cards, 0, NULL);
    size_t i;
    json_t *card;
    ck_assert_ptr_nonnull(list);
    json_array_foreach(list, i, card)
    {
        json_object_set_new(card, "health", json_string("Healthy"));
        json_object_set_new(card, "totalMemory", json_integer(TOTAL_MIB));
        if (!json_object_get(card, "freeMemory"))
            json_object_set_new(card, "freeMemory", json_integer(TOTAL_MIB));
    }
    cleanup_free char *text = json_dumps(list, JSON_COMPACT);
    sim_load(s,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"%s\"},\"status\":{\"cardList\":%s,\"updateTime\":\"%s\"}}",
             node, text, time);
}

static void load_node(const struct sim *s, const char *name)
{
    sim_load(s,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"}}",
             name);
}

struct world {
    struct sim sim;
    struct extender extender;
};

static void restart(struct world *w)
{
    extender_stop(&w->extender);
    extender_start(&w->extender, &w->sim, ARGV(NULL));
}

static void world_end(struct world *w)
{
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

static void bind_now(struct world *w, const char *pod, const char *node)
{
    cleanup_buf struct buf why = {0};
    ck_assert_msg(extender_bind(&w->extender, pod, node, &why), "%s: %s", pod, why.p);
}

static void refuse_bind(struct world *w, const char *pod, const char *node,
                        const char *reason)
{
    cleanup_buf struct buf why = {0};
    ck_assert_msg(!extender_bind(&w->extender, pod, node, &why), "%s was bound", pod);
    ck_assert_contains(why.p, reason);
}

#define TIME "2026-11-21T09:00:00Z"

/* The pod's manifest was copied from a bound pod. */
START_TEST(a_copied_uuid_does_not_survive_the_bind)
{
    struct world w;
    sim_start(&w.sim, ARGV(NULL));
    load_node(&w.sim, "n1");
    load_scv(&w.sim, "n1", TIME, "[{\"id\":0}]");
    sim_add_bound_pod(&w.sim, "first", 12, NULL,
                      "{\"gpushare/card-uuid\":\"GPU-copied\"}");
    sim_add_pod(&w.sim, "second", 12);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    bind_now(&w, "first", "n1");
    load_scv(&w.sim, "n1", TIME, "[{\"id\":0,\"uuid\":\"GPU-a\"}]");
    restart(&w);
    refuse_bind(&w, "second", "n1", "most free: 4096 of 16384 MiB on GPU0");
    world_end(&w);
}

/* The Go extender writes no UUID: one beside its annotations was copied. */
START_TEST(a_copied_uuid_beside_a_promise_of_the_go_extender_does_not_count)
{
    struct world w;
    sim_start(&w.sim, ARGV(NULL));
    load_node(&w.sim, "n1");
    load_scv(&w.sim, "n1", TIME, "[{\"id\":0,\"uuid\":\"GPU-a\"}]");
    sim_add_bound_pod(
        &w.sim, "first", 12, "n1",
        "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":\"12\","
        "\"gpushare/card-uuid\":\"GPU-copied\"}");
    sim_add_pod(&w.sim, "second", 12);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    refuse_bind(&w, "second", "n1", "most free: 4096 of 16384 MiB on GPU0");
    world_end(&w);
}

START_TEST(cards_with_one_uuid_get_no_pods)
{
    struct world w;
    char name[] = "p0";
    sim_start(&w.sim, ARGV(NULL));
    load_node(&w.sim, "n1");
    load_scv(&w.sim, "n1", TIME,
             "[{\"id\":0,\"uuid\":\"GPU-a\"},{\"id\":1,\"uuid\":\"GPU-a\"}]");
    for (; name[1] < '6'; name[1]++)
        sim_add_pod(&w.sim, name, 10);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    for (name[1] = '0'; name[1] < '6'; name[1]++)
        refuse_bind(&w, name, "n1", "duplicate UUID: GPU0,GPU1");
    lib_wait(strstr(program_output(&w.extender.program),
                    "node n1: the Scv has the same UUID GPU-a for GPU0 and GPU1") !=
             NULL);
    /* Corrected, both cards are used again. */
    load_scv(&w.sim, "n1", TIME,
             "[{\"id\":0,\"uuid\":\"GPU-a\"},{\"id\":1,\"uuid\":\"GPU-b\"}]");
    lib_wait(extender_filter(&w.extender, 10, "n1", NULL) == FITS);
    bind_now(&w, "p0", "n1");
    bind_now(&w, "p1", "n1");
    refuse_bind(&w, "p2", "n1", "most free: 6144 of 16384 MiB on GPU0");
    /* The UUID becomes a duplicate under a promise. */
    load_scv(&w.sim, "n1", TIME,
             "[{\"id\":0,\"uuid\":\"GPU-a\"},{\"id\":1,\"uuid\":\"GPU-a\"}]");
    restart(&w);
    refuse_bind(&w, "p2", "n1", "duplicate UUID: GPU0,GPU1");
    world_end(&w);
}

/* A pod of 8 units on card 0 of n1, that was bound by the Go extender. */
static void load_running(const struct sim *s, const char *name)
{
    sim_load(
        s,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"namespace\":\"default\",\"uid\":\"uid-%s\",\"annotations\":{"
        "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":\"8\"}},\"spec\":{"
        "\"nodeName\":\"n1\",\"containers\":[{\"name\":\"main\",\"image\":\"i\","
        "\"resources\":{"
        "\"limits\":{\"aliyun.com/gpu-mem\":\"8\"}}}]},\"status\":{\"phase\":"
        "\"Running\"}}",
        name, name);
}

enum { SKEW_S = 600, USED_MIB = 8192 };

static void load_sample(const struct sim *s, int64_t at_s)
{
    cleanup_buf struct buf time = {0};
    clock_format_s(&time, at_s);
    load_scv(s, "n1", time.p, "[{\"id\":0,\"freeMemory\":8192}]");
}

static int64_t outside_mib(const struct extender *e)
{
    cleanup_json json_t *node = extender_inspect(e, "n1");
    const json_t *card = json_array_get(json_object_get(node, "devs"), 0);
    return json_integer_value(json_object_get(card, "withheldMiB"));
}

/* A process outside Kubernetes takes the memory of a pod that left, on a node whose
 * clock is off. */
static void skewed(int64_t skew_s)
{
    struct world w;
    int64_t now_s = clock_wall_ns() / 1000000000 + skew_s;
    sim_start(&w.sim, ARGV(NULL));
    load_node(&w.sim, "n1");
    load_sample(&w.sim, now_s);
    load_running(&w.sim, "leaves");
    sim_add_pod(&w.sim, "new", 12);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    ck_assert_int_eq(outside_mib(&w.extender), 0);
    sim_delete_pod(&w.sim, "leaves");
    lib_wait(extender_filter(&w.extender, 12, "n1", NULL) == FITS);
    load_sample(&w.sim, now_s + 10);
    lib_wait(outside_mib(&w.extender) == USED_MIB - 1024);
    refuse_bind(&w, "new", "n1", "used outside Kubernetes: 7168 MiB on GPU0");
    /* A pod that starts after the sample uses nothing of what it shows. */
    load_running(&w.sim, "starts");
    lib_wait(extender_filter(&w.extender, 2, "n1", NULL) == NOT_NOW);
    ck_assert_int_eq(outside_mib(&w.extender), USED_MIB - 1024);
    world_end(&w);
}

START_TEST(a_node_whose_clock_is_behind_hides_nothing)
{
    skewed(-SKEW_S);
}

START_TEST(a_node_whose_clock_is_ahead_hides_nothing)
{
    skewed(SKEW_S);
}

#define NO_NODE "no Node object of this name exists"

/* A Node that is deleted leaves its Scv behind when nothing owns it. */
START_TEST(a_node_without_a_node_object_gets_no_pods)
{
    struct world w;
    cleanup_buf struct buf why = {0};
    sim_start(&w.sim, ARGV(NULL));
    load_scv(&w.sim, "n1", TIME, "[{\"id\":0,\"uuid\":\"GPU-a\"}]");
    sim_add_pod(&w.sim, "p", 8);
    sim_add_pod(&w.sim, "q", 8);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    ck_assert_int_eq(extender_filter(&w.extender, 8, "n1", &why), NOT_NOW);
    ck_assert_contains(why.p, NO_NODE);
    refuse_bind(&w, "p", "n1", NO_NODE);
    load_node(&w.sim, "n1");
    lib_wait(extender_filter(&w.extender, 8, "n1", NULL) == FITS);
    bind_now(&w, "p", "n1");
    /* Deleted between filter and bind. */
    ck_assert_int_eq(extender_filter(&w.extender, 8, "n1", NULL), FITS);
    json_decref(peer_json(&w.sim.api, "DELETE", "/api/v1/nodes/n1", NULL));
    lib_wait(extender_filter(&w.extender, 8, "n1", NULL) == NOT_NOW);
    refuse_bind(&w, "q", "n1", NO_NODE);
    /* The promise stays. */
    load_node(&w.sim, "n1");
    lib_wait(extender_filter(&w.extender, 8, "n1", NULL) == FITS);
    ck_assert_int_eq(extender_filter(&w.extender, 9, "n1", NULL), NOT_NOW);
    world_end(&w);
}

LIB_MAIN("cards", 60, a_copied_uuid_does_not_survive_the_bind,
         a_copied_uuid_beside_a_promise_of_the_go_extender_does_not_count,
         a_node_whose_clock_is_behind_hides_nothing,
         a_node_whose_clock_is_ahead_hides_nothing,
         a_node_without_a_node_object_gets_no_pods, cards_with_one_uuid_get_no_pods)
