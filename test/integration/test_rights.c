/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>
#include <string.h>

#include "base/mem.h"
#include "lib/agent.h"
#include "lib/plugin.h"
#include "lib/rights.h"
#include "lib/yamlfile.h"

/*
 * The permissions of gpushare-device-plugin against its requests, as test_rbac checks those
 * of the extender, and test_overuse those of scv-agent. No other program sends requests to kube-sim,
 * so its record shows only theirs.
 */

static struct sim sim;

#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':17179869184}"

/* test_overuse compares these with the requests of scv-agent. */
static const char *const of_agent[] = {"manifests/scv-agent.yaml",
                                       "manifests/rbac-overuse.yaml.example", NULL};
static const char *const of_plugin[] = {"manifests/device-plugin.yaml", NULL};
static const char *const of_extender[] = {"manifests/deployment.yaml",
                                          "manifests/rbac.yaml",
                                          "manifests/rbac-preemption.yaml.example", NULL};

static void begin(struct rights *rights, const char *const *files)
{
    rights_read(rights, files, "DaemonSet");
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    rights_count(&sim.api, rights);
}

static void end(struct rights *rights)
{
    rights_check(&sim.api, rights);
    rights_used(rights);
    rights_fini(rights);
    sim_stop(&sim);
}

START_TEST(the_device_plugin_uses_all_its_permissions_and_no_others)
{
    struct rights rights;
    struct plugin plugin;
    static struct kubelet kubelet;
    cleanup_answer struct kubelet_answer a = {0}, b = {0};
    begin(&rights, of_plugin);
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
    kubelet_fini(&kubelet);
    end(&rights);
}

/* The number of roles in a file of manifests/. */
static size_t roles_in(const char *path)
{
    cleanup_json json_t *all = json_array();
    size_t i, n = 0;
    json_t *j;
    yamlfile_read(all, path);
    json_array_foreach(all, i, j)
    {
        const char *kind = lib_str(j, "kind");
        n += strcmp(kind, "Role") == 0 || strcmp(kind, "ClusterRole") == 0;
    }
    return n;
}

START_TEST(every_role_of_the_manifests_is_audited)
{
    struct rights agent, plugin, extender;
    glob_t files;
    size_t n = 0;
    rights_read(&agent, of_agent, "DaemonSet");
    rights_read(&plugin, of_plugin, "DaemonSet");
    rights_read(&extender, of_extender, "Deployment");
    ck_assert_int_eq(glob("manifests/*.yaml*", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) /* those roles are for users */
        if (!strstr(files.gl_pathv[i], "/apiservice.yaml") &&
            !strstr(files.gl_pathv[i], "/rbac-inspect.yaml") &&
            !strstr(files.gl_pathv[i], "/rbac-metrics.yaml"))
            n += roles_in(files.gl_pathv[i]);
    ck_assert_uint_eq(n, agent.roles + plugin.roles + extender.roles);
    globfree(&files);
    rights_fini(&agent);
    rights_fini(&plugin);
    rights_fini(&extender);
}

LIB_MAIN("rights", 120, the_device_plugin_uses_all_its_permissions_and_no_others,
         every_role_of_the_manifests_is_audited)
