/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/mount.h>

#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"

/*
 * The kubelet's static CPU manager and its topology manager with the policy single-numa-node, on
 * a machine that seems to have two NUMA nodes of one CPU each. The kubelet reserves CPU 0.
 */

#define NODES "/sys/devices/system/node"

/* For the processes of the cell alone. */
static void make_numa_nodes(void)
{
    const char *root = lib_fmt("%s/nodes", cell_dir());
    temp_mkdir(cell_dir(), "nodes");
    for (int i = 0; i < 2; i++) {
        const char *node = lib_fmt("%s/node%d", root, i);
        temp_mkdir(root, lib_fmt("node%d", i));
        temp_write(node, "meminfo", lib_fmt("Node %d MemTotal:       16777216 kB\n", i));
        temp_write(node, "distance", i ? "20 10\n" : "10 20\n");
        temp_mkdir(node, "hugepages");
        ck_assert_int_eq(symlink(lib_fmt("/sys/devices/system/cpu/cpu%d", i),
                                 lib_fmt("%s/cpu%d", node, i)),
                         0);
    }
    ck_assert_msg(mount(root, NODES, NULL, MS_BIND, NULL) == 0, "mount " NODES ": %m");
}

/* A pod of kind "one" with a CPU of its own. */
static void create_with_cpu(const char *name)
{
    const char *text = node_pod("one", name);
    json_t *pod = lib_parse(text, strlen(text));
    json_t *limits = lib_at(pod, "spec.containers.0.resources.limits");
    json_object_set_new(limits, "cpu", json_string("1"));
    json_object_set_new(limits, "memory", json_string("64Mi"));
    peer_do(&cluster.api, "POST", CLUSTER_PODS, lib_text(pod, ""));
}

/* Fails if device ids have a Topology: hints come from the free ids of each NUMA node and not from
 * the promise, and the kubelet offers only ids of cards beside the CPU (insufficient-ids). */
TEST(a_pod_gets_the_card_of_its_promise_beside_a_cpu_of_another_numa_node)
{
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        node_say("one CPU");
        return;
    }
    make_numa_nodes();
    real_configure("cpuManagerPolicy: static\n"
                   "topologyManagerPolicy: single-numa-node\n"
                   "kubeReserved: {cpu: 100m}\n");
    if (!node_up())
        return;
    create_with_cpu("p");
    cluster_wait_running("p");
    ck_assert_uint_eq(look_check(), 1);
    const char *uid = lib_str(cluster_pod("p"), "metadata.uid");
    const char *log = real_log("p", uid, "c");
    ck_assert_str_eq(look_variable(log, "NVIDIA_VISIBLE_DEVICES"), node_cards[0].uuid);
    ck_assert_str_eq(look_variable(log, "GPUSHARE_NUMA_NODE"), "0");
    const char *state = lib_file("/var/lib/kubelet/cpu_manager_state");
    ck_assert_at(lib_parse(state, strlen(state)), lib_fmt("entries.%s.c", uid), "1");
    look_finish();
}

NODE_MAIN
