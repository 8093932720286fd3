/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/rights.h"
#include "integration/suite.h"

/*
 * Layout preemption of the real extender against kube-sim: a pod that filter rejected
 * although the node has enough free memory in total gets the card of a pod of lower
 * priority. manifests/rbac-preemption.yaml.example grants what that needs, and no more.
 */

static struct rights rights;

/* A pod on card `card` of n1; `priority` of the pending pod is 100. */
static void add_low(const char *name, int units, int card, int priority)
{
    sim_load(
        &sim,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"namespace\":\"default\",\"uid\":\"uid-%s\",\"annotations\":{"
        "\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\",\"ALIYUN_COM_GPU_MEM_POD\":\"%d\"}},"
        "\"spec\":{\"nodeName\":\"n1\",\"priority\":%d,"
        "\"terminationGracePeriodSeconds\":1,\"containers\":[{\"name\":\"c\","
        "\"image\":\"i\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"}}}]},"
        "\"status\":{\"phase\":\"Running\"}}",
        name, name, card, units, priority, units);
}

static void add_high(void)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"high\","
             "\"namespace\":\"default\",\"uid\":\"uid-high\"},\"spec\":{"
             "\"priority\":100,\"containers\":[{\"name\":\"c\",\"image\":\"i\","
             "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"12\"}}}]}}");
}

/* Two cards of 16 units with 6 free on each; `high` needs 12 on one. */
static void set_up(const char *after)
{
    rights_read(&rights,
                ARGV("manifests/deployment.yaml", "manifests/rbac.yaml",
                     "manifests/rbac-preemption.yaml.example"),
                "Deployment");
    rights_count(&sim.api, &rights);
    sim_add_node(&sim, "n1", 2, 16);
    add_low("a", 10, 0, 5);
    add_low("b", 10, 1, 7);
    add_high();
    suite_extender(ARGV("--preempt-after", after));
    lib_wait(extender_filter(&extender, 16, "n1", NULL) == NOT_NOW);
}

static json_int_t used(const char *resource)
{
    json_int_t n = 0;
    for (size_t i = 0; i < rights.n; i++)
        if (strcmp(rights.r[i].resource, resource) == 0)
            n += rights.r[i].covered;
    return n;
}

/* filter of the pod, as kube-scheduler sends it. */
static bool fits(const char *name, int priority, int units)
{
    return lib_size(
               peer_post(
                   &extender.verbs, "/gpushare-scheduler/filter",
                   lib_fmt("{\"Pod\":{\"metadata\":{\"name\":\"%s\",\"namespace\":"
                           "\"default\",\"uid\":\"uid-%s\"},\"spec\":{\"priority\":%d,"
                           "\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"
                           "\"aliyun.com/gpu-mem\":\"%d\"}}}]}},\"NodeNames\":[\"n1\"]}",
                           name, name, priority, units)),
               "NodeNames") == 1;
}

static bool exists(const char *pod)
{
    return peer_status(&sim.api, lib_fmt("/api/v1/namespaces/default/pods/%s", pod)) ==
           200;
}

/* Only a leader notes a rejected pod, and only while it leads: kube-scheduler repeats the
 * filter. */
static void await_eviction(void)
{
    lib_wait((fits("high", 100, 12), !exists("a")));
}

TEST(a_pod_of_lower_priority_is_evicted_and_the_pod_is_bound)
{
    cleanup_buf struct buf why = {0};
    set_up("500ms");
    ck_assert(!fits("high", 100, 12));
    await_eviction();
    json_t *high = peer_get(&sim.api, "/api/v1/namespaces/default/pods/high");
    ck_assert_at(high, "status.nominatedNodeName", "n1");
    ck_assert(exists("b"));
    lib_wait(fits("high", 100, 12));
    ck_assert(!fits("other", 100, 12)); /* the card is kept */
    /* The pod may be gone before the answer of its eviction arrives. */
    lib_wait(extender_metric(&extender, "gpushare_preemption_evicted_pods_total") == 1);
    lib_wait(extender_metric(&extender, "gpushare_preemption_pods{state=\"kept\"}") == 1);
    ck_assert_msg(extender_bind(&extender, "high", "n1", &why), "%s", why.p);
    lib_wait(extender_metric(&extender, "gpushare_preemption_pods{state=\"kept\"}") == 0);
    oracle_agrees(&sim.api, &extender);
    /* rejected, preempting, preempted, placed */
    lib_wait(sim_count(&sim, "create", "events", "") == 4);
    extender_stop(&extender);
    rights_check(&sim.api, &rights);
    ck_assert(sim_events(&sim, "a", "GPUPreempted", ""));
    ck_assert(sim_events(&sim, "high", "GPUPreempting", ""));
    ck_assert_int_eq(used("pods/eviction"), 1);
    ck_assert_int_ge(used("pods/status"), 1);
}

/* kube-scheduler calls a follower: the leader evicts. */
TEST(a_follower_reports_to_the_leader)
{
    set_up("500ms");
    struct extender leader = extender;
    suite_extender(ARGV("--preempt-after", "500ms"));
    ck_assert(!fits("high", 100, 12));
    await_eviction();
    ck_assert(exists("b"));
    extender_stop(&leader);
}

SUITE_MAIN(120, ARGV("--run-pods"))
