/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/rights.h"
#include "integration/suite.h"
#include "lib/overuse_node.h"
#include "lib/yamlfile.h"

/*
 * The permissions of gpushare-node against its requests, as test_rbac checks those of the extender,
 * and test_overuse those of scv-agent alone. No other program sends requests to kube-sim, so its
 * record shows only theirs.
 */

/* test_overuse compares these with the requests of scv-agent. */
static const char *const of_agent[] = {"manifests/scv-agent.yaml.example", NULL};
static const char *const of_node[] = {"manifests/node.yaml",
                                      "manifests/rbac-overuse.yaml.example", NULL};
static const char *const of_extender[] = {"manifests/deployment.yaml",
                                          "manifests/rbac.yaml",
                                          "manifests/rbac-preemption.yaml.example", NULL};

/* Of one card with 16 units, 12 are greedy's and modest's. */
TEST(the_node_program_uses_all_its_permissions_and_no_others)
{
    static struct overuse_node node;
    struct rights rights;
    cleanup_answer struct kubelet_answer a = {0}, b = {0};
    rights_read(&rights, of_node, "DaemonSet");
    agent_setup(&sim);
    rights_count(&sim.api, &rights);
    overuse_node_start(&node, true);
    plugin_start_node(&plugin, &sim,
                      ARGV("--identify-timeout", "3s", "--pods-interval", "1s",
                           "--host-root", lib_path("root"), "--overuse-grace", "1s",
                           "--on-overuse", "evict", "--lease-renew", "1s",
                           "--lease-grace", "4s"));
    kubelet_wait_registered(&node.kubelet, -1);
    plugin_pod(&sim, "p", 3, 0);
    kubelet_add(&node.kubelet, "p", ARGV("c"));
    kubelet_admit(&node.kubelet, "p", "c", MEM, 3, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
    lib_wait(sim_count(&sim, "patch", "pods", ""));
    sim_add_bound_pod(&sim, "n", 1, "n1", "{}");
    kubelet_add(&node.kubelet, "n", ARGV("c"));
    kubelet_admit(&node.kubelet, "n", "c", MEM, 1, &b);
    ck_assert_int_eq(b.status, GRPC_FAILED_PRECONDITION);
    lib_wait(sim_count(&sim, "create", "events", ""));
    lib_wait(sim_count(&sim, "get", "nodes", ""));
    lib_wait(sim_count(&sim, "create", "pods", "eviction"));
    overuse_node_use(&node, 7);
    lib_wait(sim_count(&sim, "patch", "leases", "") &&
             sim_count(&sim, "patch", "scvs", ""));
    plugin_stop(&plugin);
    rights_check(&sim.api, &rights);
    rights_used(&rights);
    overuse_node_stop(&node);
}

TEST(every_role_of_the_manifests_is_audited)
{
    struct rights agents, nodes, extenders;
    size_t n = 0;
    json_t *j;
    rights_read(&agents, of_agent, "DaemonSet");
    rights_read(&nodes, of_node, "DaemonSet");
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
    ck_assert_uint_eq(n, agents.roles + nodes.roles + extenders.roles);
}

SUITE_MAIN(120, NULL)
