/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e/cluster.h"
#include "e2e-node/cell.h"

/*
 * The node of the suite: one machine with cards (of the fake NVML), scv-agent and
 * gpushare-device-plugin with the rights of their manifests, and a kubelet. That is a
 * real one with containerd, or, where this machine cannot run containers, the one that
 * node/played.h plays: then a container's environment is what the plugin answered.
 */

#define NODE       "gpu-node"
#define NODE_GUEST "localhost/guest:1"

enum { NODE_CARDS = 4 };
extern const struct node_card {
    const char *uuid;
    int units;            /* GiB */
} node_cards[NODE_CARDS]; /* by index; of different sizes */
enum { NODE_UNITS = 8 + 24 + 16 + 48 };

/* Where it comes to nothing for a reason that lies in this machine: prints what comes
 * instead, and why. With E2E_NODE=real that is a failure. */
void node_say(const char *instead, const char *why);
/* At the first call: is there a real kubelet? It is started; its Node has these labels.
 */
bool node_decide(const char *labels, const char *instead);
/* scv-agent and the plugin are pods: node_up is not called. */
void node_daemons_are_pods(void);
/* What the fake NVML of the node says that there is, for FAKE_NVML; its path, new. */
char *node_write_cards(void);
char *node_nvml(void); /* the path of that library, new */

/* Begins a test: all runs, the Scv is there, the kubelet has the resources, and no
 * container holds a card. The first call decides which kubelet it is, and prints why it
 * is not the real one. */
void node_up(void);
/* Ends a test that has passed. */
void node_down(void);
bool node_is_real(void);

/* Kills one of "kubelet", "gpushare-device-plugin", "scv-agent", "gpushare-extender" by
 * SIGKILL and starts it again. */
void node_kill(const char *program);
/* Waits until all of them are at work again. */
void node_wait_well(void);
/* Starts the plugin (again) with further options. */
void node_start_plugin(const char *const *more);

void node_stop_plugin(void); /* waits until the kubelet has seen it */
/* How many units the Node has for pods, by the kubelet. */
int node_allocatable(void);

const char *node_plugin_dir(void);   /* where the kubelet's socket is */
const char *node_podresources(void); /* the socket's path */
/* What the container printed, its environment line by line, new; NULL: not all of it
 * yet. `pod` may be of a pod that is gone. */
char *node_log(const char *pod, const char *uid, const char *container);
/* A number of the plugin's /metrics since it was started, by its name without
 * "gpushare_plugin_"; -1: there is none. */
double node_metric(const char *name);

/* Tells how long the kubelet's calls took, by the plugin's metrics since it was started.
 */
void node_tell_latency(void);

/* Kinds of pods, by what they ask for:
 *     none   nothing            equal  2 units              one    4 units
 *     two    2 and 4 units, in two containers
 *     init   3 units, and before them 3 of an init container
 *     side   2 units, and 1 of a restartable init container
 *     split  4 units on 2 cards                             whole  a card */
void node_create(const char *kind, const char *name);
/* The same as a static pod of a real kubelet: the API shows it as NAME-<node>. And
 * its end. */
void node_create_static(const char *kind, const char *name);
void node_remove_static(const char *name);
/* The members of such a pod's spec, new. ("split" needs a label, too.) */
char *node_spec_of(const char *kind);

/* The main function of such a suite; `name` is that of its logs. */
#define NODE_MAIN(name, ...)                                                             \
    static int node_suite(void)                                                          \
    {                                                                                    \
        const TTest *const tests[] = {__VA_ARGS__};                                      \
        cluster_keep_nodes();                                                            \
        return cluster_run(name, tests, sizeof tests / sizeof *tests, 400,               \
                           ARGV("--nodes", "0"));                                        \
    }                                                                                    \
    int main(void)                                                                       \
    {                                                                                    \
        return cell_run(node_suite);                                                     \
    }
