/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"
#include "lib/expect.h"

/*
 * --filter-answer=best with the real kube-scheduler: filter decides, so kube-scheduler
 * neither scores nor calls prioritize, and binds do not fail, because the cards of each pod
 * are reserved before the next pod is judged.
 */

#define SCORED "gpushare_verb_requests_total{verb=\"prioritize\",code=\"200\"}"
enum { NODES = 4, CARDS_EACH = 2, UNITS = 3, OF_A_CARD = 2 };
enum { FIT = NODES * CARDS_EACH * OF_A_CARD };

static int64_t metric(const char *sample)
{
    return extender_metric(&cluster.extender, sample);
}

static void start(void)
{
    cluster_stop("gpushare-extender", "TERM");
    cluster_start_with("gpushare-extender", ARGV("--filter-answer=best"));
    extender_wait_answers(&cluster.extender);
    lib_wait(metric("gpushare_may_bind") == 1);
}

/* Cards of 8 GiB: by the sums of the nodes more pods of 3 GiB fit than by the cards. */
static void add_nodes(void)
{
    for (int i = 0; i < NODES; i++)
        cluster_add_node(lib_fmt("n%d", i), "", CARDS(8192, 8192));
}

TEST(a_burst_is_packed_without_failed_binds)
{
    start();
    add_nodes();
    for (int i = 0; i < FIT + 2; i++)
        cluster_create_pod(lib_fmt("p%d", i), UNITS, "", "");
    lib_wait(json_array_size(
                 cluster_list(CLUSTER_PODS "?fieldSelector=spec.nodeName%21%3D")) == FIT);
    cluster_agrees();
    ck_assert_int_eq(metric("gpushare_binds_total{result=\"ok\"}"), FIT);
    ck_assert_int_eq(metric("gpushare_binds_total{result=\"conflict\"}"), 0);
    ck_assert_int_eq(metric(SCORED), 0);
    ck_assert_int_ge(metric("gpushare_verb_requests_total{verb=\"filter\",code=\"200\"}"),
                     FIT);
    ck_assert_int_eq(metric("gpushare_reservations"), 0);
    cluster_delete_pods();
    cluster_agrees();
}

TEST(constraints_of_kube_scheduler_hold)
{
    start();
    add_nodes();
    cluster_create_pod("on-n2", UNITS, "", ON("n2"));
    cluster_wait_running("on-n2");
    expect_on("on-n2", "n2", "0");
    cluster_create_pod("prefers", UNITS, "",
                       ",\"affinity\":{\"nodeAffinity\":{"
                       "\"preferredDuringSchedulingIgnoredDuringExecution\":[{"
                       "\"weight\":100,\"preference\":{\"matchExpressions\":[{\"key\":"
                       "\"kubernetes.io/hostname\",\"operator\":\"In\",\"values\":["
                       "\"n3\"]}]}}]}}");
    cluster_wait_running("prefers");
    ck_assert_int_eq(metric(SCORED), 1);
    cluster_agrees();
}

CLUSTER_MAIN(300)
