/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/gangs.h"

/*
 * Gangs under the protocol of the coscheduling plugin, which a second kube-scheduler with a
 * plugin of ours plays (programs/coscheduling). It reads PodGroup objects of
 * scheduling.x-k8s.io; the extender knows the members by their label.
 */

#define GROUPS "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"

static char *pod_group(const char *name, int members)
{
    return xasprintf("{\"apiVersion\":\"scheduling.x-k8s.io/v1alpha1\",\"kind\":"
                     "\"PodGroup\",\"metadata\":{\"name\":\"%s\"},\"spec\":{"
                     "\"minMember\":%d}}",
                     name, members);
}

static char *label(const char *name)
{
    return xasprintf(",\"labels\":{\"scheduling.x-k8s.io/pod-group\":\"%s\"}", name);
}

static char *scheduler(const char *name)
{
    (void)name;
    return xstrdup(SCHEDULER("coscheduling"));
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

/* The configuration of the first scheduler, with the extender, for the second. */
static void write_config(const char *file)
{
    static const char ours[] =
        "profiles: [{schedulerName: coscheduling, plugins: {multiPoint: {enabled: "
        "[{name: Coscheduling}]}}}]\n";
    cleanup_free char *first = temp_read(cluster.dir, "scheduler.yaml");
    cleanup_free char *kubeconfig = xasprintf("%s/scheduler.kubeconfig", cluster.dir);
    cleanup_buf struct buf config = {0};
    const char *own = strstr(first, kubeconfig);
    ck_assert_ptr_nonnull(own);
    buf_add(&config, first, (size_t)(own - first));
    buf_printf(&config, "%s/admin.kubeconfig%s%s", cluster.dir, own + strlen(kubeconfig),
               ours);
    temp_write(cluster.dir, file, config.p);
}

static void start_scheduler(void)
{
    cleanup_free char *program = cluster_program("coscheduling");
    cleanup_free char *file = xasprintf("%s/coscheduling.yaml", cluster.dir);
    if (peer_status(&cluster.api, GROUPS) != 200)
        create_crd();
    write_config("coscheduling.yaml");
    cluster_add_program(
        "coscheduling",
        ARGV(program, "--config", file, "--leader-elect=false", "--secure-port", "0"));
}

START_TEST(three_members_on_two_cards_wait_for_a_third)
{
    start_scheduler();
    gangs_wait_for_a_third_card(&gangs);
}
END_TEST

START_TEST(two_of_three_members_start_if_min_member_is_two)
{
    start_scheduler();
    gangs_of_three_start_two(&gangs, "elastic");
}
END_TEST

START_TEST(fifty_gangs_of_four_use_every_card)
{
    start_scheduler();
    gangs_use_every_card(&gangs);
}
END_TEST

static const char *const up[] = {"--nodes", "0", NULL};
CLUSTER_MAIN("permit", 200, up, three_members_on_two_cards_wait_for_a_third,
             two_of_three_members_start_if_min_member_is_two,
             fifty_gangs_of_four_use_every_card)
