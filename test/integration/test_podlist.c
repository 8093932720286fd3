/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"

/*
 * status.podList: gpushare-node with kube-sim and a kubelet that the test simulates. The Scv lists
 * the cards that were allocated, without asking the kubelet again.
 */

#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':17179869184}"

/* With a made-up root of the node, which has no process. */
static void set_up(void)
{
    lib_output(0, ARGV("mkdir", "-p", lib_path("root/proc/2"),
                       lib_path("root/var/log/containers")));
    temp_write(lib_dir, "root/proc/2/stat",
               "2 (kthreadd) S 0 0 0 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 1 9 8\n");
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    kubelet_start(&kubelet);
    plugin_start_node(&plugin, &sim,
                      ARGV("--pods-interval", "1h", "--refresh-interval", "1s",
                           "--host-root", lib_path("root")));
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", "the driver cannot limit the memory"));
}

static void admit(const char *name, int units, int card)
{
    cleanup_answer struct kubelet_answer a = {0};
    plugin_pod(&sim, name, units, card);
    kubelet_add(&kubelet, name, ARGV("c"));
    kubelet_admit(&kubelet, name, "c", MEM, units, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s: %s", name, a.words);
}

#define ID "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142970"

static void run_process(int pid, const char *comm, const char *cgroup)
{
    temp_mkdir(lib_dir, lib_fmt("root/proc/%d", pid));
    temp_write(lib_dir, lib_fmt("root/proc/%d/stat", pid),
               lib_fmt("%d (%s) S 1 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 %d 9 8\n", pid,
                       comm, pid));
    temp_write(lib_dir, lib_fmt("root/proc/%d/cgroup", pid), cgroup);
}

#define USING(bytes, sm)                                                                 \
    "{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':17179869184,'processes':["         \
    "{'pid':11,'bytes':" bytes ",'sm':" sm "},{'pid':12,'bytes':314572800,'sm':0}]}"

/* The use of the first item of podList: "PROMISED USED SM UUID". */
static bool use_is(const char *expected)
{
    const json_t *use = lib_at(agent_scv(&sim), "status.podList.0.usage.0");
    return strcmp(lib_fmt("%lld %lld %lld %s", (long long)lib_int(use, "promisedMemory"),
                          (long long)lib_int(use, "usedMemory"),
                          (long long)lib_int(use, "utilization"), lib_str(use, "uuid")),
                  expected) == 0;
}

static bool has_metric(const char *line)
{
    return peer_says(&plugin.health, "/metrics", 200, line);
}

TEST(the_use_of_a_container_is_in_the_scv_and_the_metrics)
{
    set_up();
    admit("p", 3, 0);
    run_process(11, "python",
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
                "5d0c1f6e_8a2b_4c3d_9e4f_0123456789ab.slice/cri-containerd-" ID
                ".scope\n");
    run_process(12, "Xorg", "0::/user.slice/user-1000.slice/session-2.scope\n");
    temp_write(lib_dir, "root/var/log/containers/p_default_c-" ID ".log", "");
    agent_cards(USING("4294967296", "40") "," CARD(1));
    lib_wait(use_is("3072 4096 40 GPU-0"));
    const json_t *scv = agent_scv(&sim);
    ck_assert_uint_eq(lib_size(scv, "status.processList"), 1);
    ck_assert_at(scv, "status.processList.0.name", "Xorg");
    ck_assert_int_eq(lib_int(scv, "status.processList.0.pid"), 12);
#define OF_C                                                                             \
    "{namespace=\"default\",pod=\"p\",container=\"c\",card=\"0\",uuid=\"GPU-0\"} "
    lib_wait(has_metric("gpushare_container_gpu_memory_used_bytes" OF_C "4294967296\n"));
    lib_wait(
        has_metric("gpushare_container_gpu_memory_promised_bytes" OF_C "3221225472\n"));
    lib_wait(has_metric("gpushare_container_gpu_sm_utilization_ratio" OF_C "0.4\n"));
    lib_wait(has_metric("scv_agent_cards_usage_incomplete 1\n"));
    /* The process ends; then the container has a promise and uses nothing. */
    agent_cards(CARD(0) "," CARD(1));
    lib_wait(use_is("3072 0 0 GPU-0"));
    lib_wait(agent_number(&sim, "status.processList") == -1);
}

SUITE_MAIN(120, NULL)
