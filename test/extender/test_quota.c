/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver_rig.h"

/* ResourceQuotas in filter: what is rejected, where, and why. */

static struct core_driver_rig rig;
static struct verbs *v;
static struct counters *counters;

enum { SMALL = 10000, LARGE = 40000 };

static json_t *node_of(const char *name)
{
    cleanup_free char *text =
        xasprintf("{\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"},\"status\":{"
                  "\"capacity\":{\"nvidia.com/gpu\":\"10\"}}}",
                  name);
    return rig_json(text);
}

static json_t *scv_of(const char *name, int mib)
{
    cleanup_free char *card =
        xasprintf("{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":%d}", mib);
    return rig_scv(name, card, ",\"dialect\":\"hami\"");
}

/* MiB that the namespace may use. */
static json_t *quota_of(int mib)
{
    cleanup_free char *text =
        xasprintf("{\"kind\":\"ResourceQuota\",\"metadata\":{\"name\":\"q\","
                  "\"namespace\":\"default\"},\"spec\":{\"hard\":{"
                  "\"limits.nvidia.com/gpumem\":\"%d\"}}}",
                  mib);
    return rig_json(text);
}

/* `memory`: MiB, or "50%". */
static json_t *pod_of(const char *uid, const char *memory)
{
    cleanup_free char *text = xasprintf(
        "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\",\"namespace\":\"default\","
        "\"uid\":\"%s\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":{"
        "\"limits\":{\"nvidia.com/gpu\":\"1\",\"nvidia.com/gpumem%s\":\"%d\"}}}]}}",
        uid, uid, strchr(memory, '%') ? "-percentage" : "", atoi(memory));
    return rig_json(text);
}

/* Nodes n1 and n2 with a small card and a large one. `answer`: as in the configuration. */
static void begin(json_t *quota, int64_t answer)
{
    rig_start_core(
        &rig,
        (struct core_settings){.ledger = {.unit_mib = 1, .dialect = &dialect_hami},
                               .quotas = true,
                               .preempt_after_ms = 1000},
        false);
    rig_deliver(&rig, json_pack("[ooooo]", node_of("n1"), node_of("n2"),
                                scv_of("n1", SMALL), scv_of("n2", LARGE), quota));
    counters = counters_new();
    v = verbs_new(&(struct verbs_config){
        .driver = rig.driver, .answer = answer, .preempts = true, .counters = counters});
}

static void end(void)
{
    verbs_free(v);
    counters_free(counters);
    rig_stop(&rig);
}

/* Asks about both nodes. The only one that fits, "both" or "none"; why[]: of the others. */
static const char *ask(json_t *pod, char why[2][300])
{
    static const char *const nodes[] = {"n1", "n2"};
    const char *fits = "none";
    json_t *reply = rig_ask(v, filter_answer, pod, json_pack("[ss]", "n1", "n2"));
    const json_t *names = json_object_get(reply, "NodeNames");
    for (int i = 0; i < 2; i++) {
        const char *text = json_string_value(json_object_get(
            json_object_get(reply, "FailedAndUnresolvableNodes"), nodes[i]));
        snprintf(why[i], 300, "%s", text ? text : "");
        ck_assert_ptr_null(
            json_object_get(json_object_get(reply, "FailedNodes"), nodes[i]));
    }
    if (json_array_size(names) == 2)
        fits = "both";
    else if (json_array_size(names) == 1)
        fits = strcmp(json_string_value(json_array_get(names, 0)), "n1") ? "n2" : "n1";
    json_decref(reply);
    return fits;
}

#define EXCEEDED(asked, used)                                                            \
    "exceeded quota: q, requested: limits.nvidia.com/gpumem=" asked                      \
    ", used: limits.nvidia.com/gpumem=" used ", limited: limits.nvidia.com/gpumem=9000"

/* Evictions do not help, and the nodes are not the cause. */
TEST(a_pod_beyond_the_quota_fits_no_node)
{
    static const int64_t answers[] = {VERBS_ALL, 1};
    char why[2][300];
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        begin(quota_of(9000), answers[i]);
        ck_assert_str_eq(ask(pod_of("a", "9001"), why), "none");
        ck_assert_str_eq(why[0], EXCEEDED("9001", "0"));
        ck_assert_str_eq(why[1], why[0]);
        ck_assert_str_eq(ask(pod_of("a", "9000"), why), i ? "n2" : "both");
        cleanup_buf struct buf out = {0};
        counters_write(counters, &out);
        ck_assert_contains(out.p,
                           "gpushare_filter_rejected_nodes_total{reason=\"quota\"} 2\n");
        end();
    }
}

/* The second sees what is reserved for the first, and the first does not. */
TEST(a_filter_reserves_within_the_quota)
{
    char why[2][300];
    begin(quota_of(9000), 1);
    ck_assert_str_eq(ask(pod_of("a", "6000"), why), "n2"); /* spread */
    ck_assert_str_eq(ask(pod_of("b", "6000"), why), "none");
    ck_assert_str_eq(why[1], EXCEEDED("6000", "6000"));
    ck_assert_str_ne(ask(pod_of("a", "6000"), why), "none");
    ck_assert_str_ne(ask(pod_of("c", "3000"), why), "none");
    end();
}

/* Half of the small card is within the quota, half of the large one is not. */
TEST(a_percentage_counts_by_the_node)
{
    char why[2][300];
    begin(quota_of(9000), VERBS_ALL);
    ck_assert_str_eq(ask(pod_of("a", "50%"), why), "n1");
    ck_assert_str_eq(why[1], EXCEEDED("20000", "0"));
    end();
    begin(quota_of(9000), 1);
    ck_assert_str_eq(ask(pod_of("a", "50%"), why), "n1");
    ck_assert_str_eq(ask(pod_of("b", "50%"), why), "none");
    ck_assert_str_eq(why[0], EXCEEDED("5000", "5000"));
    end();
    begin(quota_of(0), 1);
    ck_assert_str_eq(ask(pod_of("a", "1%"), why), "none");
    ck_assert_str_eq(ask(rig_pod("own", 1000), why), "n1"); /* no quota counts it */
    end();
}

/* kube-scheduler proposes a pod without GPU as victim. */
TEST(no_pod_is_evicted_for_one_beyond_the_quota)
{
    static const char *const amounts[] = {"9001", "9000"};
    begin(quota_of(9000), 1);
    for (size_t i = 0; i < ARRAY_LEN(amounts); i++) {
        cleanup_buf struct buf reply = {0};
        json_t *pod = pod_of("a", amounts[i]);
        cleanup_free char *text = json_dumps(pod, JSON_COMPACT);
        cleanup_free char *body =
            xasprintf("{\"Pod\":%s,\"NodeNameToMetaVictims\":{\"n1\":{\"Pods\":[{\"UID\":"
                      "\"v\"}],\"NumPDBViolations\":0}}}",
                      text);
        json_decref(pod);
        ck_assert_uint_eq(rig_call(preempt_answer, v, span_of(body), &reply), 200);
        ck_assert_int_eq(strstr(reply.p, "\"n1\"") != NULL, i);
    }
    end();
}

static const char *metrics(struct buf *out)
{
    const struct metrics_source source = {.driver = rig.driver, .counters = counters};
    metrics_write(&source, out);
    metrics_write_ledger(&source, out);
    return out->p;
}

TEST(metrics_show_what_is_used)
{
    char why[2][300];
    cleanup_buf struct buf out = {0};
    begin(quota_of(9000), 1);
    ask(pod_of("a", "6000"), why);
    const char *text = metrics(&out);
    ck_assert_contains(text, "gpushare_watch_synced{resource=\"resourcequotas\"} 1\n");
    static const char of[] = "gpushare_resourcequota{namespace=\"default\","
                             "resourcequota=\"q\",resource=\"limits.nvidia.com/gpumem\","
                             "type=\"%s\"} %d\n";
    cleanup_free char *hard = xasprintf(of, "hard", 9000),
                      *used = xasprintf(of, "used", 6000);
    ck_assert_contains(text, hard);
    ck_assert_contains(text, used);
    ck_assert_ptr_null(strstr(text, "gpucores"));
    end();
}

TEST(unknown_quotas_are_the_reason)
{
    char why[2][300];
    begin(quota_of(9000), VERBS_ALL);
    end();
    rig_start_core(
        &rig,
        (struct core_settings){.ledger = {.unit_mib = 1, .dialect = &dialect_hami},
                               .quotas = true},
        false);
    rig.runs[CORE_QUOTAS] = 0; /* its list does not arrive */
    rig_deliver(&rig, json_pack("[oooo]", node_of("n1"), node_of("n2"),
                                scv_of("n1", SMALL), scv_of("n2", LARGE)));
    counters = counters_new();
    v = verbs_new(&(struct verbs_config){.driver = rig.driver, .counters = counters});
    ck_assert_str_eq(ask(pod_of("a", "1000"), why), "none");
    ck_assert_str_eq(why[0],
                     "not ready: the first list of resourcequotas has not finished");
    ck_assert_str_eq(ask(rig_pod("own", 1000), why), "both");
    cleanup_buf struct buf out = {0};
    const char *text = metrics(&out);
    ck_assert_contains(text, "gpushare_watch_synced{resource=\"resourcequotas\"} 0\n");
    ck_assert_ptr_null(strstr(text, "gpushare_resourcequota"));
    end();
}
