/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver_rig.h"

#include "domain/keys.h"
#include "extender/tried.h"

/* A pod that asks filter again did not start on the node that it got: that one comes last. */

enum { CARD_MIB = 16276 };

static struct core_driver_rig rig;
static struct verbs *v;

/* Nodes n1 to n<n> with one empty card each; of n1 half is taken, if `better`: it is the best. */
static void begin(size_t n, bool better, struct verbs_config config)
{
    json_t *objects = json_array();
    rig_start_core(&rig,
                   (struct core_settings){.ledger = {.unit_mib = 1},
                                          .gang_wait_ms = 60000,
                                          .preempt_after_ms = 1000},
                   false);
    for (size_t i = 1; i <= n; i++) {
        char name[16], card[128];
        snprintf(name, sizeof name, "n%zu", i);
        snprintf(card, sizeof card,
                 "{\"id\":0,\"uuid\":\"GPU-%zu\",\"health\":\"Healthy\","
                 "\"totalMemory\":%d}",
                 i, CARD_MIB);
        json_array_append_new(objects, rig_scv(name, card, ""));
        json_array_append_new(objects, json_pack("{s:s,s:{s:s},s:{s:{s:s,s:s,s:s}}}",
                                                 "kind", "Node", "metadata", "name", name,
                                                 "status", "allocatable", "cpu", "16",
                                                 "memory", "64Gi", "pods", "110"));
    }
    if (better) {
        json_t *pod = rig_pod("old", CARD_MIB / 2);
        json_object_set_new(json_object_get(pod, "spec"), "nodeName", json_string("n1"));
        json_object_set_new(json_object_get(pod, "metadata"), "annotations",
                            json_pack("{s:s,s:s,s:s}", KEY_MEM_IDX, "0", KEY_MEM_POD,
                                      "8138", KEY_MEM_DEV, "16276"));
        json_array_append_new(objects, pod);
    }
    rig_deliver(&rig, objects);
    config.driver = rig.driver;
    config.answer = config.answer ? config.answer : 1;
    v = verbs_new(&config);
}

static void end(void)
{
    verbs_free(v);
    rig_stop(&rig);
}

/* A pod with that limit, or with CPU alone. */
static json_t *pod_of(const char *uid, const char *limit, const char *amount)
{
    return json_pack("{s:s,s:{s:s,s:s,s:s},s:{s:[{s:{s:{s:s},s:{s:s}}}]}}", "kind", "Pod",
                     "metadata", "name", uid, "namespace", "default", "uid", uid, "spec",
                     "containers", "resources", "limits", limit, amount, "requests",
                     "cpu", "2");
}

static json_t *reply_of(enum verb_source source, json_t *pod, size_t n)
{
    json_t *names = json_array();
    for (size_t i = 1; i <= n; i++)
        json_array_append_new(names, json_sprintf("n%zu", i));
    return rig_ask_as(v, filter_answer, source, pod, names, 200);
}

/* The number of the node that the pod gets of the first n; 0: none, or several. */
static int ask(json_t *pod, size_t n)
{
    json_t *reply = reply_of(VERB_SCHEDULER, pod, n),
           *names = json_object_get(reply, "NodeNames");
    int node = json_array_size(names) == 1
                   ? atoi(json_string_value(json_array_get(names, 0)) + 1)
                   : 0;
    json_decref(reply);
    return node;
}

static const struct kind {
    const char *limit, *amount;
    enum score_policy policy;
} kinds[] = {
    {KEY_GPU_MEM, "4000", SCORE_BINPACK},
    {KEY_GPU_MEM, "4000", SCORE_FGD},
    {KEY_GPU_MEM, "16276", SCORE_SPREAD},
    {KEY_GPU_COUNT, "1", SCORE_BINPACK},
    {KEY_NVIDIA_GPU, "1", SCORE_BINPACK},
    {KEY_NVIDIA_GPU, "1", SCORE_FGD},
    {"cpu", "2", SCORE_FGD}, /* without GPU */
};

TEST(equal_nodes_are_answered_in_turn)
{
    ARRAY_EACH_ITEM(const struct kind, kind, kinds, ARRAY_LEN(kinds))
    {
        begin(3, false, (struct verbs_config){.policy = kind->policy});
        for (int i = 0; i < 16; i++) {
            int node = ask(pod_of("p", kind->limit, kind->amount), 3);
            ck_assert_msg(node == i % 3 + 1, "%s, %d, %d: n%d", kind->limit,
                          (int)kind->policy, i, node);
        }
        end();
    }
}

/* ... although its own reservation may still be on the best one. */
TEST(a_worse_node_comes_before_one_that_was_tried)
{
    begin(3, true, (struct verbs_config){.policy = SCORE_BINPACK});
    ck_assert_int_eq(ask(pod_of("p", KEY_GPU_MEM, "4000"), 3), 1);
    ck_assert_int_eq(ask(pod_of("p", KEY_GPU_MEM, "4000"), 3), 2);
    ck_assert_int_eq(ask(pod_of("p", KEY_GPU_MEM, "4000"), 3), 3);
    ck_assert_int_eq(ask(pod_of("p", KEY_GPU_MEM, "4000"), 3), 1);
    ck_assert_int_eq(ask(pod_of("q", KEY_GPU_MEM, "100"), 3), 1); /* another pod */
    end();
}

TEST(a_node_that_was_tried_is_not_excluded)
{
    begin(2, false, (struct verbs_config){.policy = SCORE_BINPACK});
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(ask(pod_of("p", KEY_GPU_COUNT, "1"), 1), 1);
    ck_assert_int_eq(ask(pod_of("p", KEY_GPU_COUNT, "1"), 2), 2);
    ck_assert_int_eq(ask(pod_of("p", KEY_GPU_COUNT, "1"), 1), 1);
    end();
}

/* More nodes are as good than the core gets at a time, and than are remembered. */
TEST(each_of_many_equal_nodes_gets_its_turn)
{
    enum { NODES = 40 };
    bool seen[NODES + 1] = {false};
    begin(NODES, false, (struct verbs_config){.policy = SCORE_BINPACK});
    for (int i = 0; i <= TRIED_NODES; i++) {
        int node = ask(pod_of("p", KEY_GPU_MEM, "4000"), NODES);
        ck_assert_int_gt(node, 0);
        ck_assert(!seen[node]);
        seen[node] = true;
    }
    ck_assert_int_eq(ask(pod_of("p", KEY_GPU_MEM, "4000"), NODES), 1); /* forgotten */
    end();
}

TEST(another_pod_is_not_affected)
{
    begin(3, false, (struct verbs_config){.policy = SCORE_BINPACK});
    for (int i = 0; i < 4; i++) {
        char uid[8];
        snprintf(uid, sizeof uid, "p%d", i);
        ck_assert_int_eq(ask(pod_of(uid, KEY_NVIDIA_GPU, "1"), 3), 1);
    }
    ck_assert_int_eq(ask(pod_of("p0", KEY_NVIDIA_GPU, "1"), 3), 2);
    end();
}

/* kube-scheduler chooses among several nodes; a report asks for nobody; a template Node is no
 * node. */
TEST(only_a_node_that_was_the_answer_counts)
{
    begin(3, false, (struct verbs_config){.policy = SCORE_BINPACK});
    json_decref(reply_of(VERB_REPORT, pod_of("p", KEY_GPU_MEM, "4000"), 3));
    json_t *template = json_pack("[{s:{s:s,s:{s:s}}}]", "metadata", "name", "n1-template",
                                 "annotations", KEY_CARDS, "1x16276MiB");
    json_decref(rig_ask(v, filter_answer, pod_of("p", KEY_GPU_MEM, "4000"), template));
    ck_assert_int_eq(ask(pod_of("p", KEY_GPU_MEM, "4000"), 3), 1);
    end();

    begin(3, false, (struct verbs_config){.policy = SCORE_BINPACK, .answer = 2});
    for (int i = 0; i < 3; i++) {
        json_t *reply = reply_of(VERB_SCHEDULER, pod_of("p", KEY_GPU_MEM, "4000"), 3);
        json_t *names = json_object_get(reply, "NodeNames");
        ck_assert_str_eq(json_string_value(json_array_get(names, 0)), "n1");
        json_decref(reply);
    }
    end();
}

/* Of nvidia.com/gpu, whose members have no reservation. */
TEST(a_member_of_a_gang_gets_another_node)
{
    begin(3, false, (struct verbs_config){.policy = SCORE_BINPACK});
    for (int i = 0; i < 6; i++) {
        json_t *pod = pod_of("p", KEY_NVIDIA_GPU, "1");
        json_object_set_new(
            json_object_get(pod, "metadata"), "labels",
            json_pack("{s:s,s:s}", "pod-group.scheduling.sigs.k8s.io/name", "g",
                      "pod-group.scheduling.sigs.k8s.io/min-available", "1"));
        ck_assert_int_eq(ask(pod, 3), i % 3 + 1);
    }
    end();
}

/* -- the memory -- */

static size_t known(struct tried *t, const char *uid, int64_t now_ms, size_t *at,
                    const char *node)
{
    struct tried_nodes nodes;
    tried_get(t, span_of(uid), now_ms, &nodes);
    *at = tried_find(&nodes, span_of(node));
    return nodes.n;
}

TEST(an_answer_is_forgotten_after_five_minutes)
{
    struct tried *t = tried_new();
    size_t at;
    tried_add(t, SPAN("p"), SPAN("n1"), 1000);
    tried_add(t, SPAN("p"), SPAN("n2"), 2000);
    ck_assert_uint_eq(known(t, "p", 2000, &at, "n1"), 2);
    ck_assert_uint_eq(at, 0);
    tried_add(t, SPAN("p"), SPAN("n1"), 3000); /* again */
    ck_assert_uint_eq(known(t, "p", 2000 + TRIED_MS - 1, &at, "n1"), 2);
    ck_assert_uint_eq(at, 1);
    ck_assert_uint_eq(known(t, "p", 2000 + TRIED_MS, &at, "n1"), 1);
    ck_assert_uint_eq(at, 0);
    ck_assert_uint_eq(known(t, "p", 3000 + TRIED_MS, &at, "n1"), 0);
    ck_assert_uint_eq(at, 0);
    tried_free(t);
}

TEST(a_bound_pod_is_forgotten)
{
    struct tried *t = tried_new();
    size_t at;
    tried_add(t, SPAN("p"), SPAN("n1"), 1);
    tried_add(t, SPAN(""), SPAN("n1"), 1); /* a pod without a UID is no pod */
    tried_forget(t, SPAN("q"));
    ck_assert_uint_eq(known(t, "p", 1, &at, "n1"), 1);
    tried_forget(t, SPAN("p"));
    ck_assert_uint_eq(known(t, "p", 1, &at, "n1"), 0);
    ck_assert_uint_eq(known(t, "", 1, &at, "n1"), 0);
    tried_free(t);
}

TEST(the_memory_is_limited)
{
    struct tried *t = tried_new();
    size_t at;
    char uid[16];
    tried_add(t, SPAN("first"), SPAN("n1"), 1);
    tried_add(t, SPAN("second"), SPAN("n1"), 1);
    tried_add(t, SPAN("first"), SPAN("n2"), 1);
    for (int i = 0; i < TRIED_PODS - 1; i++) {
        snprintf(uid, sizeof uid, "p%d", i);
        tried_add(t, span_of(uid), SPAN("n1"), 2);
    }
    ck_assert_uint_eq(known(t, "first", 2, &at, "n1"), 2);
    ck_assert_uint_eq(known(t, "second", 2, &at, "n1"), 0);
    ck_assert_uint_eq(known(t, uid, 2, &at, "n1"), 1);
    tried_free(t);
}
