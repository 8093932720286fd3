/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/rights.h"
#include "integration/suite.h"
#include "lib/yamlfile.h"

/*
 * The permissions of gpushare-device-plugin against its requests, as test_rbac checks those
 * of the extender, and test_overuse those of scv-agent. No other program sends requests to kube-sim,
 * so its record shows only theirs.
 */

#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':17179869184}"

/* test_overuse compares these with the requests of scv-agent. */
static const char *const of_agent[] = {"manifests/scv-agent.yaml",
                                       "manifests/rbac-overuse.yaml.example", NULL};
static const char *const of_plugin[] = {"manifests/device-plugin.yaml", NULL};
static const char *const of_extender[] = {"manifests/deployment.yaml",
                                          "manifests/rbac.yaml",
                                          "manifests/rbac-preemption.yaml.example", NULL};

TEST(the_device_plugin_uses_all_its_permissions_and_no_others)
{
    struct rights rights;
    cleanup_answer struct kubelet_answer a = {0}, b = {0};
    rights_read(&rights, of_plugin, "DaemonSet");
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    rights_count(&sim.api, &rights);
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, ARGV("--identify-timeout", "3s"));
    kubelet_wait_registered(&kubelet, -1);
    plugin_pod(&sim, "p", 3, 1);
    kubelet_add(&kubelet, "p", ARGV("c"));
    kubelet_admit(&kubelet, "p", "c", MEM, 3, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
    lib_wait(sim_count(&sim, "patch", "pods", ""));
    sim_add_bound_pod(&sim, "n", 2, "n1", "{}");
    kubelet_add(&kubelet, "n", ARGV("c"));
    kubelet_admit(&kubelet, "n", "c", MEM, 2, &b);
    ck_assert_int_eq(b.status, GRPC_FAILED_PRECONDITION);
    lib_wait(sim_count(&sim, "create", "events", ""));
    lib_wait(sim_count(&sim, "get", "nodes", ""));
    plugin_stop(&plugin);
    rights_check(&sim.api, &rights);
    rights_used(&rights);
}

TEST(every_role_of_the_manifests_is_audited)
{
    struct rights agents, plugins, extenders;
    size_t n = 0;
    json_t *j;
    rights_read(&agents, of_agent, "DaemonSet");
    rights_read(&plugins, of_plugin, "DaemonSet");
    rights_read(&extenders, of_extender, "Deployment");
    for (const char *const *file = lib_glob("manifests/*.yaml*"); *file; file++) {
        if (strstr(*file, "/apiservice.yaml") || strstr(*file, "/rbac-inspect.yaml") ||
            strstr(*file, "/rbac-metrics.yaml"))
            continue; /* those roles are for users */
        lib_each(j, yamlfile_all(*file)) {
            const char *kind = lib_str(j, "kind");
            n += strcmp(kind, "Role") == 0 || strcmp(kind, "ClusterRole") == 0;
        }
    }
    ck_assert_uint_eq(n, agents.roles + plugins.roles + extenders.roles);
}

SUITE_MAIN(120, NULL)
