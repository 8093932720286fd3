/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"
#include "lib/expect.h"

/*
 * Layout preemption with the real kube-apiserver and kube-scheduler: nodes have enough free
 * memory in total, but no card has, so kube-scheduler's own preemption finds no victims.
 */

#define CLASS(c) ",\"priorityClassName\":\"" c "\""
#define BUDGETS  "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
static const char rules[] = "manifests/rbac-preemption.yaml.example";

static void begin(bool granted)
{
    cluster_create_priority("lowest", 1, "");
    cluster_create_priority("low", 10, "");
    cluster_create_priority("urgent", 1000, "");
    cluster_create_priority("never", 1000, ",\"preemptionPolicy\":\"Never\"");
    if (granted)
        cluster_kubectl("apply", "-f", rules);
    else
        cluster_kubectl("delete", "--ignore-not-found", "-f", rules);
    cluster_kubectl("delete", "poddisruptionbudgets", "--all");
    cluster_listen();
    cluster_start_with("gpushare-extender", ARGV("--preempt-after", "1s"));
    extender_wait_answers(&cluster.extender);
}

static void run_pod(const char *name, const char *app, const char *class,
                    const char *node)
{
    cluster_create_pod(
        name, 4,
        lib_fmt(",\"annotations\":{\"gpushare/placement\":\"spread\"},\"labels\":{"
                "\"app\":\"%s\"}",
                app),
        lib_fmt(",\"priorityClassName\":\"%s\",\"nodeSelector\":{"
                "\"kubernetes.io/hostname\":\"%s\"}",
                class, node));
    cluster_wait_running(name);
}

/* Two nodes with two cards of 8 GiB, each card with a pod of 4. */
static void fill(void)
{
    cluster_add_node("n1", "", CARDS(8192, 8192));
    cluster_add_node("n2", "", CARDS(8192, 8192));
    run_pod("a", "first", "lowest", "n1");
    run_pod("b", "second", "low", "n1");
    run_pod("c", "second", "low", "n2");
    run_pod("d", "second", "low", "n2");
}

static int count_left(void)
{
    return 4 - cluster_is_gone("a") - cluster_is_gone("b") - cluster_is_gone("c") -
           cluster_is_gone("d");
}

TEST(the_cheapest_pod_is_evicted_and_the_pod_is_bound)
{
    begin(true);
    fill();
    cluster_create_pod("important", 6, "", CLASS("urgent"));
    cluster_wait_running("important");
    expect_on("important", "n1", "0");
    ck_assert(cluster_is_gone("a"));
    ck_assert_int_eq(count_left(), 3);
    ck_assert_int_eq(
        extender_metric(&cluster.extender, "gpushare_preemption_evicted_pods_total"), 1);
    cluster_agrees();
}

/* Allows no eviction, as long as fewer than 100 pods match. */
static void protect(const char *app)
{
    cluster_create(BUDGETS,
                   "{\"apiVersion\":\"policy/v1\",\"kind\":\"PodDisruptionBudget\","
                   "\"metadata\":{\"name\":\"%s\"},\"spec\":{\"minAvailable\":100,"
                   "\"selector\":{\"matchLabels\":{\"app\":\"%s\"}}}}",
                   app, app);
}

/* The budget of `a` refuses the eviction: the next search takes another pod. */
TEST(a_pod_of_a_disruption_budget_stays_and_another_leaves)
{
    begin(true);
    fill();
    protect("first");
    cluster_create_pod("important", 6, "", CLASS("urgent"));
    cluster_wait_running("important");
    ck_assert(!cluster_is_gone("a"));
    ck_assert_int_eq(count_left(), 3);
    ck_assert_int_eq(
        extender_metric(&cluster.extender, "gpushare_preemption_refused_evictions_total"),
        1);
    cluster_agrees();
}

TEST(without_the_permissions_nothing_is_evicted)
{
    begin(false);
    fill();
    cluster_create_pod("important", 6, "", CLASS("urgent"));
    lib_wait(cluster_logged("cannot set nominatedNodeName") > 0);
    ck_assert_int_eq(count_left(), 4);
    ck_assert_int_eq(
        extender_metric(&cluster.extender, "gpushare_preemption_evicted_pods_total"), 0);
}

CLUSTER_MAIN(180)
