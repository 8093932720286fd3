/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"

/* --filter-answer=best and N: filter decides, and reserves cards until bind. */

static const char *const both[] = {"n1", "n2", NULL};

#define NONE "[]"
#define N1   "[\"n1\"]"
#define N2   "[\"n2\"]"
#define BOTH "[\"n1\",\"n2\"]"

/* Two nodes, each with a card of 16 GiB. */
static void set_up(const char *answer)
{
    sim_add_node(&sim, "n1", 1, 16);
    sim_add_node(&sim, "n2", 1, 16);
    suite_extender(ARGV("--filter-answer", answer));
    lib_wait(extender_leads(&extender));
}

/* The reply of filter to this body, kept. */
static json_t *filter_body(const struct extender *e, const char *body)
{
    return lib_own(peer_json(&e->verbs, "POST", "/gpushare-scheduler/filter", body));
}

/* For a pod that requests `units`. */
static json_t *filter(const struct extender *e, const char *pod, int units)
{
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, pod, units, both);
    return filter_body(e, body.p);
}

static void expect_answer(const struct extender *e, const char *pod, int units,
                          const char *nodes)
{
    const json_t *reply = filter(e, pod, units);
    ck_assert_str_eq(lib_text(reply, "NodeNames"), nodes);
    ck_assert_at(reply, "Error", "");
    if (strcmp(nodes, NONE) != 0) {
        ck_assert_str_eq(lib_text(reply, "FailedNodes"), "{}");
        ck_assert_str_eq(lib_text(reply, "FailedAndUnresolvableNodes"), "{}");
    }
}

/* MiB that are reserved on the card of the node. */
static int64_t reserved(const struct extender *e, const char *node)
{
    return lib_int(peer_get(&e->observers, lib_fmt("/inspect/%s", node)),
                   "nodes.0.devs.0.reservedMiB");
}

static bool answers(const struct extender *e, const char *pod, int units,
                    const char *nodes)
{
    return !strcmp(lib_text(filter(e, pod, units), "NodeNames"), nodes);
}

/* The pod is answered with the node, where `gib` are reserved then: at once, unless the
 * extender leads but has not listed the pods yet, or its lease is renewed late. Then the other
 * node has its turn, too. */
static void expect_reserved(const struct extender *e, const char *pod, int units,
                            const char *node, int gib)
{
    lib_wait(answers(e, pod, units, lib_fmt("[\"%s\"]", node)) &&
             reserved(e, node) == gib << 10);
}

TEST(the_second_pod_gets_the_other_card_before_the_first_is_bound)
{
    set_up("best");
    sim_add_pod(&sim, "a", 10);
    sim_add_pod(&sim, "b", 10);
    expect_reserved(&extender, "a", 10, "n1", 10);
    expect_reserved(&extender, "b", 10, "n2", 10);
    expect_answer(&extender, "c", 10, NONE);
    const json_t *reply = filter(&extender, "c", 10);
    ck_assert_contains(lib_str(reply, "FailedNodes.n1"),
                       "reserved for pods that are being bound: 10240 MiB on GPU0");
    ck_assert_contains(lib_str(reply, "FailedNodes.n2"), "10240 MiB on GPU0");
    ck_assert(extender_bind(&extender, "a", "n1", NULL));
    ck_assert(extender_bind(&extender, "b", "n2", NULL));
    ck_assert_int_eq(reserved(&extender, "n1"), 0);
    ck_assert_int_eq(sim_bound(&sim), 2);
    oracle_agrees(&sim.api, &extender);
}

/* An admission policy forbids it, for instance. The promise stays on the node until GETs have shown
 * the pod unbound; then another node has its turn. */
TEST(a_pod_whose_binding_is_refused_gets_another_node)
{
    cleanup_buf struct buf why = {0};
    set_up("best");
    sim_add_pod(&sim, "a", 10);
    expect_reserved(&extender, "a", 10, "n1", 10);
    sim_fault(&sim, "[{\"subresource\":\"binding\",\"action\":\"answer\","
                    "\"status\":403}]");
    ck_assert(!extender_bind(&extender, "a", "n1", &why));
    ck_assert_contains(why.p, "403");
    lib_wait(answers(&extender, "a", 10, N2));
    ck_assert_int_eq(reserved(&extender, "n1"), 0);
    ck_assert(!extender_bind(&extender, "a", "n2", NULL));
    lib_wait(answers(&extender, "a", 10, N1));
    sim_no_faults(&sim);
    ck_assert(extender_bind(&extender, "a", "n1", NULL));
    ck_assert_int_eq(sim_bound(&sim), 1);
}

TEST(a_follower_forwards_filter_to_the_leader)
{
    struct extender follower;
    set_up("best");
    extender_start(&follower, &sim, ARGV("--filter-answer", "best"));
    lib_wait(answers(&follower, "a", 10, N1) && reserved(&extender, "n1") == 10 << 10);
    ck_assert_int_eq(reserved(&follower, "n1"), 0);
    lib_wait(answers(&follower, "b", 10, N2) && reserved(&extender, "n2") == 10 << 10);
    expect_answer(&extender, "c", 10, NONE);
    /* Without a leader it answers by itself, and reserves nothing. */
    extender_kill(&extender);
    expect_answer(&follower, "d", 10, N1);
    ck_assert(reserved(&follower, "n1") == 0 || extender_leads(&follower));
    extender = follower;
    /* A new leader reserves once it has listed the pods. */
    expect_reserved(&extender, "e", 10, "n1", 10);
    oracle_agrees(&sim.api, &extender);
}

TEST(n_best_nodes_are_answered_without_a_reservation)
{
    set_up("1");
    expect_answer(&extender, "a", 4, N1);
    suite_restart(ARGV("--filter-answer", "2"));
    lib_wait(extender_leads(&extender));
    sim_add_node(&sim, "n3", 1, 32);
    sim_add_node(&sim, "n4", 1, 16);
    sim_add_bound_pod(&sim, "old", 12, "n4",
                      "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":"
                      "\"12\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\"}");
    lib_wait(extender_filter(&extender, 5, "n4", NULL) == NOT_NOW);
    lib_wait(extender_filter(&extender, 32, "n3", NULL) == FITS);
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, "a", 4, ARGV("n3", "n2", "n1", "n4"));
    /* The fullest; then equal ones, by name. */
    ck_assert_str_eq(lib_text(filter_body(&extender, body.p), "NodeNames"),
                     "[\"n4\",\"n1\"]");
    ck_assert_int_eq(reserved(&extender, "n4"), 0);
    oracle_agrees(&sim.api, &extender);
}

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

static void expect_answer_with(const char *spec, const char *nodes)
{
    static int pods; /* each asks once */
    const json_t *reply = filter_body(
        &extender,
        lib_fmt(
            "{\"Pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"default\","
            "\"uid\":\"u%d\"},\"spec\":{%s,\"containers\":[{\"resources\":{\"limits\":{"
            "\"aliyun.com/gpu-mem\":\"1\"}}}]}},\"NodeNames\":[\"n1\",\"n2\"]}",
            pods++, spec));
    ck_assert_str_eq(lib_text(reply, "NodeNames"), nodes);
}

TEST(pods_with_preferences_are_answered_with_all_nodes)
{
    set_up("best");
    array_items(p, preferences)
        expect_answer_with(*p, BOTH);
    array_items(c, constraints)
        expect_answer_with(*c, N1);
    expect_answer(&extender, "no-gpu", 0, BOTH);
    oracle_agrees(&sim.api, &extender);
}

/* The kubelet's list has the pod of nvidia.com/gpu on n1 in any case. Kubelets up to 1.33 list what has
 * ended; a container whose pod was deleted by force may still run. */
TEST(the_card_of_a_pod_that_has_ended_is_free)
{
    set_up("all");
    sim_load(
        &sim,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"job\","
        "\"namespace\":\"default\",\"uid\":\"uid-job\"},\"spec\":{\"nodeName\":\"n1\","
        "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
        "\"nvidia.com/gpu\":\"1\"}}}]},\"status\":{\"phase\":\"Running\"}}");
    /* The watches of pods and of Scvs are not ordered: an Scv that names a pod not seen yet makes the
     * extender read it. After a restart the pod is known first. */
    suite_restart(ARGV("--filter-answer", "all"));
    peer_do(&sim.api, "PATCH", "/apis/core.run-linux.com/v1/scvs/n1",
            "{\"status\":{\"podList\":[{\"namespace\":\"default\",\"name\":\"job\","
            "\"container\":\"c\",\"resource\":\"nvidia.com/gpu\",\"units\":1,"
            "\"cards\":[\"GPU-n1-0\"]}]}}");
    lib_wait(answers(&extender, "a", 1, N2));
    ck_assert_int_eq(sim_count(&sim, "get", "pods", ""), 0);
    peer_do(&sim.api, "PATCH", "/api/v1/namespaces/default/pods/job/status",
            "{\"status\":{\"phase\":\"Succeeded\"}}");
    lib_wait(answers(&extender, "a", 1, BOTH));
    suite_restart(ARGV("--filter-answer", "all"));
    lib_wait(answers(&extender, "a", 1, BOTH));
    ck_assert_int_eq(sim_count(&sim, "get", "pods", ""), 2);
    /* After its deletion only an extender that has seen its end knows of it. */
    sim_delete_pod(&sim, "job");
    expect_answer(&extender, "a", 1, BOTH);
    suite_restart(ARGV("--filter-answer", "all"));
    lib_wait(sim_count(&sim, "get", "pods", "") == 3);
    lib_wait(answers(&extender, "a", 1, N2));
}

SUITE_MAIN(150, NULL)
