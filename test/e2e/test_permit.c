/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/gangs.h"
#include "lib/cluster.h"

/*
 * Gangs under the protocol of the coscheduling plugin, which a second kube-scheduler with a
 * plugin of ours plays (programs/coscheduling). It reads PodGroup objects of
 * scheduling.x-k8s.io; the extender knows the members by their label.
 */

#define GROUPS "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"

static char *pod_group(const char *name, int members)
{
    return lib_fmt("{\"apiVersion\":\"scheduling.x-k8s.io/v1alpha1\",\"kind\":"
                   "\"PodGroup\",\"metadata\":{\"name\":\"%s\"},\"spec\":{"
                   "\"minMember\":%d}}",
                   name, members);
}

static char *label(const char *name)
{
    return lib_fmt(",\"labels\":{\"scheduling.x-k8s.io/pod-group\":\"%s\"}", name);
}

static char *scheduler(const char *name)
{
    (void)name;
    return lib_fmt(SCHEDULER("coscheduling"));
}

static const struct gangs gangs = {
    .objects = GROUPS,
    .object = pod_group,
    .metadata = label,
    .spec = scheduler,
    .scheduler = "coscheduling",
};

static void create_crd(void)
{
    cluster_create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                   "{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":"
                   "\"CustomResourceDefinition\",\"metadata\":{\"name\":"
                   "\"podgroups.scheduling.x-k8s.io\",\"annotations\":{"
                   "\"api-approved.kubernetes.io\":\"unapproved\"}},\"spec\":{\"group\":"
                   "\"scheduling.x-k8s.io\",\"scope\":\"Namespaced\",\"names\":{\"kind\":"
                   "\"PodGroup\",\"plural\":\"podgroups\"},\"versions\":[{\"name\":"
                   "\"v1alpha1\",\"served\":true,\"storage\":true,\"schema\":{"
                   "\"openAPIV3Schema\":{\"type\":\"object\",\"properties\":{\"spec\":{"
                   "\"type\":\"object\",\"properties\":{\"minMember\":{\"type\":"
                   "\"integer\"}}}}}}}]}}");
    lib_wait(peer_status(&cluster.api, GROUPS) == 200);
}

static void start_scheduler(void)
{
    if (peer_status(&cluster.api, GROUPS) != 200)
        create_crd();
    /* The configuration of the first scheduler, with the extender, for the second. */
    temp_write(cluster.dir, "coscheduling.yaml",
               lib_fmt("%sprofiles: [{schedulerName: coscheduling, plugins: {multiPoint: "
                       "{enabled: [{name: Coscheduling}]}}}]\n",
                       lib_swap(cluster_file("scheduler.yaml"), "/scheduler.kubeconfig",
                                "/admin.kubeconfig")));
    cluster_add_program("coscheduling",
                        ARGV(cluster_program("coscheduling"), "--config",
                             lib_fmt("%s/coscheduling.yaml", cluster.dir),
                             "--leader-elect=false", "--secure-port", "0"));
}

TEST(three_members_on_two_cards_wait_for_a_third)
{
    start_scheduler();
    gangs_wait_for_a_third_card(&gangs);
}

TEST(two_of_three_members_start_if_min_member_is_two)
{
    start_scheduler();
    gangs_of_three_start_two(&gangs, "elastic", 2);
}

TEST(fifty_gangs_of_four_use_every_card)
{
    start_scheduler();
    gangs_use_every_card(&gangs);
}

CLUSTER_MAIN(200)
