/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "e2e/cluster.h"
#include "e2e/expect.h"

/*
 * Which node and which card, where there is more to it than memory: who has to leave,
 * what kind of card it is, whether its node is alive.
 */

#define PODS      CLUSTER_PODS
#define SPREAD    ",\"annotations\":{\"gpushare/placement\":\"spread\"}"
#define CLASS(c)  ",\"priorityClassName\":\"" c "\""
#define CLASS_URL "/apis/scheduling.k8s.io/v1/priorityclasses"

/* -- preemption -- */

static void create_class(const char *name, int value)
{
    cleanup_free char *path = xasprintf(CLASS_URL "/%s", name);
    if (peer_status(&cluster.api, path) != 200)
        cluster_create(CLASS_URL,
                       "{\"apiVersion\":\"scheduling.k8s.io/v1\",\"kind\":"
                       "\"PriorityClass\",\"metadata\":{\"name\":\"%s\"},\"value\":%d}",
                       name, value);
}

static void create_classes(void)
{
    create_class("lowest", 1);
    create_class("low", 10);
    create_class("urgent", 1000);
}

static void run_pod(const char *name, int units, const char *metadata, const char *spec)
{
    cluster_create_pod(name, units, metadata, spec);
    cluster_wait_running(name);
}

static bool is_there(const char *name)
{
    cleanup_free char *path = xasprintf(PODS "/%s", name);
    return peer_status(&cluster.api, path) == 200;
}

/* kube-scheduler counts 4 GiB that are free, so for 8 it evicts the two pods of the
 * lowest priority: each is on another card, and neither card is free then. Who has to
 * leave besides is what only the extender knows. */
START_TEST(who_else_has_to_leave_the_card)
{
    create_classes();
    cluster_add_node("n1", NULL, NULL, CARDS(8192, 8192));
    run_pod("a", 3, SPREAD, CLASS("lowest"));
    run_pod("b", 3, SPREAD, CLASS("lowest"));
    run_pod("c", 3, SPREAD, CLASS("low"));
    run_pod("d", 3, SPREAD, CLASS("low"));
    expect_on("a", "n1", "0");
    expect_on("b", "n1", "1");
    expect_on("c", "n1", "0");
    expect_on("d", "n1", "1");
    run_pod("important", 8, "", CLASS("urgent"));
    ck_assert(!is_there("a") && !is_there("b"));
    ck_assert_msg(is_there("c") != is_there("d"), "one more had to leave, and one only");
    expect_on("important", "n1", is_there("c") ? "1" : "0");
    cluster_agrees();
}

/* There are 8 GiB free on the node, but 4 on each card. kube-scheduler's own rules let
 * the pod pass, so it never asks whom to evict. */
START_TEST(nobody_leaves_when_only_the_layout_is_in_the_way)
{
    create_classes();
    cluster_add_node("n1", NULL, NULL, CARDS(8192, 8192));
    run_pod("a", 4, SPREAD, CLASS("lowest"));
    run_pod("b", 4, SPREAD, CLASS("lowest"));
    cluster_create_pod("important", 6, "", CLASS("urgent"));
    cluster_wait_refused("important",
                         "needs 6144 MiB on one card; most free: 4096 of 8192 MiB");
    ck_assert(is_there("a") && is_there("b") && !cluster_bound("important"));
    cleanup_json json_t *pod = cluster_pod("important");
    ck_assert_str_eq(kit_str(pod, "status.nominatedNodeName"), "");
    cluster_delete(PODS "/a"); /* and when one leaves by itself */
    cluster_wait_running("important");
    expect_on("important", "n1", "0");
    cluster_agrees();
}

static const char *const up[] = {"--nodes", "0", NULL};
CLUSTER_MAIN("choice", 120, up, who_else_has_to_leave_the_card,
             nobody_leaves_when_only_the_layout_is_in_the_way)
