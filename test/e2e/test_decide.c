/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/expect.h"

/*
 * --filter-answer=best with the real kube-scheduler: filter decides, so kube-scheduler
 * neither scores nor calls prioritize, and binds do not fail, because the cards of each pod
 * are reserved before the next pod is judged.
 */

enum { NODES = 4, CARDS_EACH = 2, UNITS = 3, OF_A_CARD = 2 };
enum { FIT = NODES * CARDS_EACH * OF_A_CARD };

static void start(void)
{
    cluster_stop("gpushare-extender", "TERM");
    cluster_start_with("gpushare-extender", ARGV("--filter-answer=best"));
    extender_wait_answers(&cluster.extender);
    lib_wait(extender_metric(&cluster.extender, "gpushare_may_bind") == 1);
}

/* Cards of 8 GiB: by the sums of the nodes more pods of 3 GiB fit than by the cards. */
static void add_nodes(void)
{
    for (int i = 0; i < NODES; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        cluster_add_node(name, NULL, NULL, CARDS(8192, 8192));
    }
}

static void create_pods(int first, int n)
{
    for (int i = first; i < first + n; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%02d", i);
        cluster_create_pod(name, UNITS, "", "");
    }
}

static int bound_pods(int n)
{
    int bound = 0;
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%02d", i);
        bound += cluster_bound(name);
    }
    return bound;
}

START_TEST(a_burst_is_packed_without_failed_binds)
{
    start();
    add_nodes();
    create_pods(0, FIT + 2);
    lib_wait(bound_pods(FIT + 2) == FIT);
    cluster_agrees();
    ck_assert_int_eq(
        extender_metric(&cluster.extender, "gpushare_binds_total{result=\"ok\"}"), FIT);
    ck_assert_int_eq(
        extender_metric(&cluster.extender, "gpushare_binds_total{result=\"conflict\"}"),
        0);
    ck_assert_int_eq(
        extender_metric(&cluster.extender,
                        "gpushare_verb_requests_total{verb=\"prioritize\",code=\"200\"}"),
        0);
    ck_assert_int_ge(
        extender_metric(&cluster.extender,
                        "gpushare_verb_requests_total{verb=\"filter\",code=\"200\"}"),
        FIT);
    ck_assert_int_eq(extender_metric(&cluster.extender, "gpushare_reservations"), 0);
    cluster_delete_pods();
    cluster_agrees();
}

START_TEST(constraints_of_kube_scheduler_hold)
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
    ck_assert_int_eq(
        extender_metric(&cluster.extender,
                        "gpushare_verb_requests_total{verb=\"prioritize\",code=\"200\"}"),
        1);
    cluster_agrees();
}

CLUSTER_MAIN("decide", 300, ARGV("--nodes", "0"), a_burst_is_packed_without_failed_binds,
             constraints_of_kube_scheduler_hold)
