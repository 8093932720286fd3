/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/agent.h"
#include "lib/plugin.h"

/*
 * status.podList: scv-agent and gpushare-device-plugin on one node, with kube-sim and a
 * kubelet that the test simulates. The Scv lists the cards that the plugin allocated.
 */

static struct sim sim;
static struct kubelet kubelet;
static struct plugin plugin;
static struct agent agent;

#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':17179869184}"

static void set_up(void)
{
    cleanup_free char *source = agent_file();
    cleanup_free char *podresources = temp_path(lib_dir, "podresources.sock");
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, ARGV(NULL));
    kubelet_wait_registered(&kubelet, -1);
    agent_start(&agent, &sim, source,
                ARGV("--update-interval", "100ms", "--podresources-socket", podresources,
                     "--pods-interval", "1s"));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
}

static void tear_down(void)
{
    agent_stop(&agent);
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
    sim_stop(&sim);
}

static void admit(const char *name, int units, int card)
{
    cleanup_answer struct kubelet_answer a = {0};
    plugin_pod(&sim, name, units, card);
    kubelet_add(&kubelet, name, ARGV("c"));
    kubelet_admit(&kubelet, name, "c", MEM, units, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s: %s", name, a.words);
}

/* One line per item: "POD RESOURCE UNITS CARD,CARD\n". */
static char *pod_list(void)
{
    cleanup_json json_t *scv = agent_scv(&sim);
    struct buf out = {0};
    size_t i, k;
    json_t *item, *card;
    buf_adds(&out, "");
    json_array_foreach(scv ? lib_at(scv, "status.podList") : NULL, i, item)
    {
        buf_printf(&out, "%s %s %lld ", lib_str(item, "name"), lib_str(item, "resource"),
                   (long long)json_integer_value(lib_at(item, "units")));
        json_array_foreach(lib_at(item, "cards"), k, card)
            buf_printf(&out, "%s%s", k ? "," : "", json_string_value(card));
        buf_addc(&out, '\n');
    }
    return buf_take(&out);
}

static bool pod_list_is(const char *expected)
{
    cleanup_free char *is = pod_list();
    return strcmp(is, expected) == 0;
}

#define P_AND_Q                                                                          \
    "p aliyun.com/gpu-mem 3 GPU-1\n"                                                     \
    "q aliyun.com/gpu-mem 5 GPU-0\n"

START_TEST(allocations_of_the_plugin_are_in_the_scv)
{
    set_up();
    admit("p", 3, 1);
    admit("q", 5, 0);
    lib_wait(pod_list_is(P_AND_Q));
    kubelet_remove(&kubelet, "p");
    sim_delete_pod(&sim, "p");
    lib_wait(pod_list_is("q aliyun.com/gpu-mem 5 GPU-0\n"));
    tear_down();
}

/* A pod whose container has the device `id` of NVIDIA's plugin. */
static void allocate_nvidia(const char *pod, const char *id)
{
    cleanup_json json_t *ids = json_pack("[s]", id);
    kubelet_add(&kubelet, pod, ARGV("c"));
    kubelet_give(&kubelet, pod, "c", NVIDIA, ids);
}

START_TEST(allocations_of_nvidias_plugin_are_in_the_scv)
{
    set_up();
    allocate_nvidia("whole", "GPU-0");
    allocate_nvidia("shared", "GPU-1::2");
    allocate_nvidia("mig", "MIG-4b0f1c9a-1d2e-5f3a-8b7c-6d5e4f3a2b1c");
    allocate_nvidia("old-mig", "MIG-GPU-1/3/0");
    lib_wait(pod_list_is("mig nvidia.com/gpu 1 \n"
                         "old-mig nvidia.com/gpu 1 GPU-1\n"
                         "shared nvidia.com/gpu 1 GPU-1\n"
                         "whole nvidia.com/gpu 1 GPU-0\n"));
    tear_down();
}

/* The simulated kubelet lists its pods and device ids in a different order each time. */
START_TEST(a_changed_order_causes_no_patch)
{
    set_up();
    admit("p", 3, 1);
    admit("q", 5, 0);
    lib_wait(pod_list_is(P_AND_Q));
    int writes = sim_count(&sim, "patch", "scvs", ""), lists = kubelet_listed(&kubelet);
    lib_wait(kubelet_listed(&kubelet) >= lists + 4);
    ck_assert_int_eq(sim_count(&sim, "patch", "scvs", ""), writes);
    ck_assert(pod_list_is(P_AND_Q));
    tear_down();
}

LIB_MAIN("podlist", 120, allocations_of_the_plugin_are_in_the_scv,
         allocations_of_nvidias_plugin_are_in_the_scv, a_changed_order_causes_no_patch)
