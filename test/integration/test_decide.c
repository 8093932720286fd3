/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/* --filter-answer=best and N: filter decides, and reserves cards until bind. */

static const char *const both[] = {"n1", "n2", NULL};

struct fixture {
    struct sim sim;
    struct extender extender;
};

/* Two nodes, each with a card of 16 GiB. */
static void set_up(struct fixture *f, const char *answer)
{
    sim_start(&f->sim, ARGV(NULL));
    sim_add_node(&f->sim, "n1", 1, 16);
    sim_add_node(&f->sim, "n2", 1, 16);
    extender_start(&f->extender, &f->sim, ARGV("--filter-answer", answer));
    lib_wait(extender_leads(&f->extender));
}

static void tear_down(struct fixture *f)
{
    oracle_agrees(&f->sim.api, &f->extender);
    extender_stop(&f->extender);
    sim_stop(&f->sim);
}

static json_t *filter_body(const struct extender *e, const char *body)
{
    return peer_json(&e->verbs, "POST", "/gpushare-scheduler/filter", body);
}

/* The reply of filter for a pod that requests `units`. New. */
static json_t *filter(const struct extender *e, const char *pod, int units)
{
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, pod, units, both);
    return filter_body(e, body.p);
}

/* The names in the reply, joined by a comma. New. */
static char *names_of(json_t *reply)
{
    struct buf names = {0};
    size_t i;
    json_t *name;
    buf_adds(&names, "");
    json_array_foreach(lib_at(reply, "NodeNames"), i, name)
        buf_printf(&names, "%s%s", i ? "," : "", json_string_value(name));
    return buf_take(&names);
}

static void expect_answer(const struct extender *e, const char *pod, int units,
                          const char *nodes)
{
    cleanup_json json_t *reply = filter(e, pod, units);
    cleanup_free char *names = names_of(reply);
    ck_assert_str_eq(names, nodes);
    ck_assert_str_eq(lib_str(reply, "Error"), "");
    if (*nodes) {
        ck_assert_uint_eq(json_object_size(lib_at(reply, "FailedNodes")), 0);
        ck_assert_uint_eq(json_object_size(lib_at(reply, "FailedAndUnresolvableNodes")),
                          0);
    }
}

/* MiB that are reserved on the card of the node. */
static int64_t reserved(const struct extender *e, const char *node)
{
    cleanup_json json_t *n = extender_inspect(e, node);
    json_t *card = json_array_get(json_object_get(n, "devs"), 0);
    return json_integer_value(json_object_get(card, "reservedMiB"));
}

/* The pod is answered with the node, where `gib` are reserved then: at once, unless the
 * extender leads but has not listed the pods yet, or its lease is renewed late. */
static void expect_reserved(const struct extender *e, const char *pod, int units,
                            const char *node, int gib)
{
    lib_wait((expect_answer(e, pod, units, node), reserved(e, node) == gib << 10));
}

START_TEST(the_second_pod_gets_the_other_card_before_the_first_is_bound)
{
    struct fixture f;
    set_up(&f, "best");
    sim_add_pod(&f.sim, "a", 10);
    sim_add_pod(&f.sim, "b", 10);
    expect_reserved(&f.extender, "a", 10, "n1", 10);
    expect_reserved(&f.extender, "b", 10, "n2", 10);
    expect_answer(&f.extender, "c", 10, "");
    cleanup_json json_t *reply = filter(&f.extender, "c", 10);
    ck_assert_contains(lib_str(reply, "FailedNodes.n1"),
                       "reserved for pods that are being bound: 10240 MiB on GPU0");
    ck_assert_contains(lib_str(reply, "FailedNodes.n2"), "10240 MiB on GPU0");
    ck_assert(extender_bind(&f.extender, "a", "n1", NULL));
    ck_assert(extender_bind(&f.extender, "b", "n2", NULL));
    ck_assert_int_eq(reserved(&f.extender, "n1"), 0);
    ck_assert_int_eq(sim_bound(&f.sim), 2);
    tear_down(&f);
}
END_TEST

START_TEST(a_restart_loses_reservations_without_harm)
{
    struct fixture f;
    set_up(&f, "best");
    sim_add_pod(&f.sim, "a", 10);
    sim_add_pod(&f.sim, "b", 10);
    expect_reserved(&f.extender, "a", 10, "n1", 10);
    extender_stop(&f.extender);
    extender_start(&f.extender, &f.sim, ARGV("--filter-answer", "best"));
    lib_wait(extender_leads(&f.extender));
    ck_assert_int_eq(reserved(&f.extender, "n1"), 0);
    expect_reserved(&f.extender, "b", 10, "n1", 10);
    ck_assert(extender_bind(&f.extender, "b", "n1", NULL));
    ck_assert(!extender_bind(&f.extender, "a", "n1", NULL));
    expect_answer(&f.extender, "a", 10, "n2");
    ck_assert(extender_bind(&f.extender, "a", "n2", NULL));
    tear_down(&f);
}
END_TEST

START_TEST(a_follower_forwards_filter_to_the_leader)
{
    struct fixture f;
    struct extender follower;
    set_up(&f, "best");
    extender_start(&follower, &f.sim, ARGV("--filter-answer", "best"));
    lib_wait((expect_answer(&follower, "a", 10, "n1"),
              reserved(&f.extender, "n1") == 10 << 10));
    ck_assert_int_eq(reserved(&follower, "n1"), 0);
    lib_wait((expect_answer(&follower, "b", 10, "n2"),
              reserved(&f.extender, "n2") == 10 << 10));
    expect_answer(&f.extender, "c", 10, "");
    /* Without a leader it answers by itself, and reserves nothing. */
    extender_kill(&f.extender);
    expect_answer(&follower, "d", 10, "n1");
    ck_assert(reserved(&follower, "n1") == 0 || extender_leads(&follower));
    /* A new leader reserves once it has listed the pods. */
    lib_wait(
        (expect_answer(&follower, "d", 10, "n1"), reserved(&follower, "n1") == 10 << 10));
    f.extender = follower;
    tear_down(&f);
}
END_TEST

START_TEST(n_best_nodes_are_answered_without_a_reservation)
{
    struct fixture f;
    set_up(&f, "1");
    expect_answer(&f.extender, "a", 4, "n1");
    extender_stop(&f.extender);
    extender_start(&f.extender, &f.sim, ARGV("--filter-answer", "2"));
    lib_wait(extender_leads(&f.extender));
    sim_add_node(&f.sim, "n3", 1, 32);
    sim_add_node(&f.sim, "n4", 1, 16);
    sim_add_bound_pod(&f.sim, "old", 12, "n4",
                      "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":"
                      "\"12\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\"}");
    lib_wait(extender_filter(&f.extender, 5, "n4", NULL) == NOT_NOW);
    lib_wait(extender_filter(&f.extender, 32, "n3", NULL) == FITS);
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, "a", 4, ARGV("n3", "n2", "n1", "n4"));
    cleanup_json json_t *reply = filter_body(&f.extender, body.p);
    cleanup_free char *names = names_of(reply);
    ck_assert_str_eq(names, "n4,n1"); /* the fullest; then equal ones, by name */
    ck_assert_int_eq(reserved(&f.extender, "n4"), 0);
    tear_down(&f);
}
END_TEST

/* Preferences of the pod: kube-scheduler weighs them. */
static const char *const preferences[] = {
    "\"affinity\":{\"nodeAffinity\":{\"preferredDuringSchedulingIgnoredDuringExecution\":"
    "[{\"weight\":1,\"preference\":{\"matchExpressions\":[]}}]}}",
    "\"affinity\":{\"podAntiAffinity\":{"
    "\"preferredDuringSchedulingIgnoredDuringExecution\":[{\"weight\":1}]}}",
    "\"topologySpreadConstraints\":[{\"maxSkew\":1,\"topologyKey\":\"zone\","
    "\"whenUnsatisfiable\":\"ScheduleAnyway\"}]",
};
static const char *const constraints[] = {
    "\"affinity\":{\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":"
    "{},\"preferredDuringSchedulingIgnoredDuringExecution\":[]},\"podAffinity\":null}",
    "\"topologySpreadConstraints\":[{\"maxSkew\":1,\"topologyKey\":\"zone\","
    "\"whenUnsatisfiable\":\"DoNotSchedule\"}]",
    "\"affinity\":null",
};

static void expect_answer_with(const struct extender *e, const char *spec,
                               const char *nodes)
{
    cleanup_free char *body = xasprintf(
        "{\"Pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"default\",\"uid\":\"u\"},"
        "\"spec\":{%s,\"containers\":[{\"resources\":{\"limits\":{"
        "\"aliyun.com/gpu-mem\":\"1\"}}}]}},\"NodeNames\":[\"n1\",\"n2\"]}",
        spec);
    cleanup_json json_t *reply = filter_body(e, body);
    cleanup_free char *names = names_of(reply);
    ck_assert_msg(strcmp(names, nodes) == 0, "%s: %s", spec, names);
}

START_TEST(pods_with_preferences_are_answered_with_all_nodes)
{
    struct fixture f;
    set_up(&f, "best");
    for (size_t i = 0; i < ARRAY_LEN(preferences); i++)
        expect_answer_with(&f.extender, preferences[i], "n1,n2");
    for (size_t i = 0; i < ARRAY_LEN(constraints); i++)
        expect_answer_with(&f.extender, constraints[i], "n1");
    expect_answer(&f.extender, "no-gpu", 0, "n1,n2");
    tear_down(&f);
}
END_TEST

LIB_MAIN("decide", 150, the_second_pod_gets_the_other_card_before_the_first_is_bound,
         a_restart_loses_reservations_without_harm,
         a_follower_forwards_filter_to_the_leader,
         n_best_nodes_are_answered_without_a_reservation,
         pods_with_preferences_are_answered_with_all_nodes)
