/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"

/*
 * Gangs under the real kube-scheduler: its plugin GangScheduling lets the members of a gang
 * wait at Permit until enough of them have a node. It counts the memory of a node, not of
 * its cards.
 */

enum { GANG_MAX = 4 };

#define WORKLOADS "/apis/scheduling.k8s.io/v1alpha1/namespaces/default/workloads"

static void start_extender(const char *answer)
{
    cleanup_free char *option = xasprintf("--filter-answer=%s", answer);
    cluster_start_with("gpushare-extender", ARGV(option));
    extender_wait_answers(&cluster.extender);
}

/* Creates the gang and its members NAME-0, NAME-1, ... of 10 GiB. */
static void create_gang(const char *name, int members)
{
    cluster_create(WORKLOADS,
                   "{\"apiVersion\":\"scheduling.k8s.io/v1alpha1\",\"kind\":\"Workload\","
                   "\"metadata\":{\"name\":\"%s\"},\"spec\":{\"podGroups\":[{\"name\":"
                   "\"all\",\"policy\":{\"gang\":{\"minCount\":%d}}}]}}",
                   name, members);
    cleanup_free char *spec =
        xasprintf(",\"workloadRef\":{\"name\":\"%s\",\"podGroup\":\"all\"}", name);
    for (int i = 0; i < members; i++) {
        cleanup_free char *pod = xasprintf("%s-%d", name, i);
        cluster_create_pod(pod, 10, "", spec);
    }
}

static void delete_gang(const char *name, int members)
{
    for (int i = 0; i < members; i++) {
        cleanup_free char *pod = xasprintf(CLUSTER_PODS "/%s-%d", name, i);
        cluster_delete(pod);
    }
    cleanup_free char *workload = xasprintf(WORKLOADS "/%s", name);
    cluster_delete(workload);
}

START_TEST(three_members_on_two_cards_wait_for_a_third)
{
    start_extender("best");
    cluster_add_node("n1", NULL, NULL, CARDS(16276));
    cluster_add_node("n2", NULL, NULL, CARDS(16276));
    create_gang("train", 3);
    cluster_wait_refused("train-0",
                         "gang train: 1 of 3 members finds no place beside the "
                         "others; needs 10240 MiB on one card");
    cluster_create_pod("other", 10, "", ""); /* nothing is kept for the gang */
    cluster_wait_running("other");
    cluster_add_node("n3", NULL, NULL, CARDS(16276));
    cluster_wait_refused("train-1", "gang train: 1 of 3 members finds no place");
    cluster_delete(CLUSTER_PODS "/other");
    for (int i = 0; i < 3; i++) {
        cleanup_free char *pod = xasprintf("train-%d", i);
        cluster_wait_running(pod);
    }
    delete_gang("train", 3);
    cluster_delete_pods();
    cluster_agrees();
}
END_TEST

START_TEST(two_members_on_two_cards_are_bound)
{
    start_extender("best");
    cluster_add_node("n1", NULL, NULL, CARDS(16276));
    cluster_add_node("n2", NULL, NULL, CARDS(16276));
    create_gang("train", 2);
    cluster_wait_running("train-0");
    cluster_wait_running("train-1");
    delete_gang("train", 2);
    cluster_agrees();
}
END_TEST

/* The number of bound pods of each gang "gNN". */
static void count_bound(int *bound, int gangs)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    size_t i;
    json_t *pod;
    memset(bound, 0, (size_t)gangs * sizeof *bound);
    json_array_foreach(pods, i, pod)
    {
        int gang = 0;
        if (sscanf(lib_str(pod, "metadata.name"), "g%d-", &gang) == 1 && gang < gangs)
            bound[gang] += *lib_str(pod, "spec.nodeName") != '\0';
    }
}

/* Waits until `full` gangs are bound and no other is bound in part. Returns for how long
 * some gang was bound in part, in ms. */
static int64_t wait_for_gangs(int *bound, int gangs, int full)
{
    int64_t end = lib_now_ms() + 60000, half_ms = 0, last = lib_now_ms();
    for (;;) {
        int whole = 0, half = 0;
        count_bound(bound, gangs);
        for (int i = 0; i < gangs; i++) {
            whole += bound[i] == GANG_MAX;
            half += bound[i] > 0 && bound[i] < GANG_MAX;
        }
        half_ms += half ? lib_now_ms() - last : 0;
        last = lib_now_ms();
        if (whole == full && !half)
            return half_ms;
        ck_assert_msg(last < end, "%d gangs are bound and %d in part, expected %d", whole,
                      half, full);
        lib_pause();
    }
}

/* Ten gangs fit at a time. When all those have run, the next ten start. */
START_TEST(fifty_gangs_of_four_use_every_card)
{
    enum { NODES = 10, GANGS = 50, AT_ONCE = NODES };
    int bound[GANGS], left = GANGS;
    bool done[GANGS] = {false};
    int64_t begun = lib_now_ms(), half_ms = 0;
    start_extender("best");
    for (int i = 0; i < NODES; i++) {
        cleanup_free char *node = xasprintf("n%d", i);
        cluster_add_node(node, NULL, NULL, CARDS(16276, 16276, 16276, 16276));
    }
    for (int i = 0; i < GANGS; i++) {
        cleanup_free char *name = xasprintf("g%d", i);
        create_gang(name, GANG_MAX);
    }
    while (left > 0) {
        half_ms += wait_for_gangs(bound, GANGS, left < AT_ONCE ? left : AT_ONCE);
        cluster_agrees();
        for (int i = 0; i < GANGS; i++) {
            cleanup_free char *name = xasprintf("g%d", i);
            if (bound[i] == 0 || done[i])
                continue;
            delete_gang(name, GANG_MAX);
            done[i] = true;
            left--;
        }
    }
    cluster_report("50 gangs of four ran on 40 cards", lib_now_ms() - begun);
    cluster_report("meanwhile some gang was bound in part for", half_ms);
    cluster_agrees();
}
END_TEST

static const char *const up[] = {"--nodes", "0", "--gates",
                                 "GenericWorkload=true,GangScheduling=true", NULL};
CLUSTER_MAIN("gang", 200, up, three_members_on_two_cards_wait_for_a_third,
             two_members_on_two_cards_are_bound, fifty_gangs_of_four_use_every_card)
