/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e-node/cell.h"
#include "lib/cluster.h"

/*
 * The node of the suite: cards of the fake NVML, scv-agent and gpushare-device-plugin with
 * the RBAC rights of their manifests, and a real kubelet with containerd. On a machine that
 * cannot run containers the suites say so and test nothing.
 */

#define NODE       "gpu-node"
#define NODE_GUEST "localhost/guest:1"
#define NODE_PLUGINS                                                                     \
    "/var/lib/kubelet/device-plugins" /* folder of the kubelet's socket */
#define NODE_PODRESOURCES "/var/lib/kubelet/pod-resources/kubelet.sock"

enum { NODE_CARDS = 4 };
extern const struct node_card {
    const char *uuid;
    int units; /* GiB */
    int numa_node;
    const char *links;    /* as the fake NVML has them: a ring of the cards 0, 1, 3, 2 */
} node_cards[NODE_CARDS]; /* by index; 1 and 2 have one size */
enum { NODE_UNITS = 8 + 16 + 16 + 56 };

/* The instances that card NODE_SPLIT has in MIG mode, each with half of its memory. */
enum { NODE_SPLIT = 2, NODE_INSTANCES = 2 };
#define NODE_PROFILE "1g.8gb"
extern const char *const node_instances[NODE_INSTANCES]; /* UUIDs */

/* Prints that this machine cannot run something, and why. With E2E_NODE=real it fails the
 * test. */
void node_say(const char *why);
/* Starts the kubelet at the first call, with these labels of its Node. False: this machine
 * cannot run it; the reason has been printed. */
bool node_decide(const char *labels);
/* Before node_up: the plugin is gpushare-node, and does scv-agent's task too. */
void node_daemons_are_one(void);
/* For tests in which scv-agent and the plugin are pods: use instead of node_up. */
void node_daemons_are_pods(void);
/* Writes the script of the fake NVML with the node's cards and what is used of them, which may
 * be NULL. Returns its path, kept. */
struct node_use {
    const char *processes; /* "PID:BYTES,..." */
    long long bytes;
};
char *node_write_cards(const struct node_use *of_each);
/* Puts card NODE_SPLIT into MIG mode, for the rest of the test. */
void node_split_card(void);
/* Which driver NVML has from now on in this test. Since 615 it limits memory for each cgroup, with
 * its account in the file node_limits() (gpu/fake_limits.h), kept. */
void node_set_driver(const char *version);
char *node_limits(void);
const char *node_cgroups(void);     /* the folder of cgroup v2 */
char *node_built(const char *name); /* the full path of lib_built, kept */
char *node_nvml(void);              /* path of the fake NVML library, kept */

/* Begins a test: waits until all programs run, the Scv exists, the kubelet has the
 * resources, and no container holds a card. False: this machine cannot run containers. */
bool node_up(void);
bool node_up_with(const char *const *more); /* further options of the plugin */

/* Kills "kubelet", "gpushare-device-plugin", "scv-agent" or "gpushare-extender" with SIGKILL
 * and starts it again. */
void node_kill(const char *program);
/* Waits until all of them work again. */
void node_wait_well(void);
/* Restarts the plugin with further options. */
void node_start_plugin(const char *const *more);

void node_stop_plugin(void); /* waits until the kubelet has noticed */
/* Waits until `kubectl inspect gpushare --check` with these options says so. */
void node_check(const char *const *options, const char *words);
/* The allocatable units of the Node. */
int node_allocatable(void);

/* A value of the plugin's /metrics, by name without "gpushare_plugin_"; -1: absent. */
double node_metric(const char *name);

/* Kinds of pods, by request:
 *     none   nothing            equal  2 units              one    4 units
 *     two    2 and 4 units, in two containers
 *     init   3 units, and an init container with 3 units
 *     side   2 units, and a restartable init container with 1 unit
 *     split  4 units on 2 cards                             whole  a card
 *     quad   4 units on all cards                           wholes 4 cards */
void node_create(const char *kind, const char *name);
/* Creates and removes a static pod; its mirror pod is NAME-<node>. */
void node_create_static(const char *kind, const char *name);
void node_remove_static(const char *name);
/* Such a pod in JSON, kept. */
char *node_pod(const char *kind, const char *name);

/* Deployments with many pods, which replace pods that the kubelet refuses. */
void node_create_many(const char *name, const char *kind, int n);
void node_scale(const char *name, int n);
/* Waits until n pods run in namespace default and none is being deleted. Ignores pods that
 * the kubelet has refused. */
void node_wait_running(int n);

/* Runs the tests on a cluster with these arguments, where the machine has a cell. */
int node_run(const char *const *args);
/* The main function of a node suite. */
#define NODE_MAIN                                                                        \
    static int node_suite(void)                                                          \
    {                                                                                    \
        cluster_keep_nodes();                                                            \
        return node_run(ARGV("--nodes", "0"));                                           \
    }                                                                                    \
    int main(void)                                                                       \
    {                                                                                    \
        return cell_run(node_suite);                                                     \
    }
