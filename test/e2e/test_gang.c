/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/gangs.h"
#include "lib/cluster.h"

/*
 * Gangs under kube-scheduler's own plugin GangScheduling. In Kubernetes 1.37 a pod names a
 * PodGroup, in 1.35 a pod group within a Workload.
 */

#define SCHEDULING "/apis/scheduling.k8s.io/"

/* `minimum` 0: the members do not wait for each other. */
static char *policy(int minimum)
{
    return minimum ? lib_fmt("{\"gang\":{\"minCount\":%d}}", minimum)
                   : lib_fmt("{\"basic\":{}}");
}

static char *pod_group(const char *name, int minimum)
{
    return lib_fmt("{\"apiVersion\":\"scheduling.k8s.io/v1beta1\",\"kind\":"
                   "\"PodGroup\",\"metadata\":{\"name\":\"%s\"},\"spec\":{"
                   "\"schedulingPolicy\":%s}}",
                   name, policy(minimum));
}

static char *workload(const char *name, int minimum)
{
    return lib_fmt("{\"apiVersion\":\"scheduling.k8s.io/v1alpha1\",\"kind\":"
                   "\"Workload\",\"metadata\":{\"name\":\"%s\"},\"spec\":{\"podGroups\":"
                   "[{\"name\":\"all\",\"policy\":%s}]}}",
                   name, policy(minimum));
}

static char *in_pod_group(const char *name)
{
    return lib_fmt(",\"schedulingGroup\":{\"podGroupName\":\"%s\"}", name);
}

static char *in_workload(const char *name)
{
    return lib_fmt(",\"workloadRef\":{\"name\":\"%s\",\"podGroup\":\"all\"}", name);
}

static const struct gangs *gangs(void)
{
    static const struct gangs pod_groups = {
        .objects = SCHEDULING "v1beta1/namespaces/default/podgroups",
        .object = pod_group,
        .spec = in_pod_group,
        .scheduler = "kube-scheduler",
    };
    static const struct gangs workloads = {
        .objects = SCHEDULING "v1alpha1/namespaces/default/workloads",
        .object = workload,
        .spec = in_workload,
        .scheduler = "kube-scheduler",
    };
    return peer_status(&cluster.api, pod_groups.objects) == 200 ? &pod_groups
                                                                : &workloads;
}

TEST(three_members_on_two_cards_wait_for_a_third)
{
    gangs_wait_for_a_third_card(gangs());
}

TEST(members_of_a_basic_group_start_alone)
{
    gangs_of_three_start_two(gangs(), "basic", 0);
}

TEST(fifty_gangs_of_four_use_every_card)
{
    gangs_use_every_card(gangs());
}

/* In 1.35 the plugin has a gate of its own, which 1.37 does not know. */
int main(void)
{
    bool old = strcmp(cluster_release(), "1.35") == 0;
    const char *const up[] = {
        "--nodes", "0", "--gates",
        old ? "GenericWorkload=true,GangScheduling=true" : "GenericWorkload=true", NULL};
    return cluster_run(200, up);
}
