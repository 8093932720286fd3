/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/agent.h"
#include "lib/kubelet.h"

/*
 * What scv-agent measures on a node where a container uses more than it was promised. The
 * cards and their processes come from lib_dir/cards.json, the cgroups from a made-up /proc
 * with real processes, and the promises from a simulated kubelet.
 *
 * One card of 16 GiB, 1 GiB of it free. `greedy` was promised 4 GiB and uses 8, `modest` was
 * promised 8 and uses 1, so it could not get 6 of what it was promised. Outside Kubernetes
 * 6 GiB are in use. Both are pods of the namespace default with one container, c.
 */

#define OVERUSE_GREEDY "5d0c1f6e-8a2b-4c3d-9e4f-000000000001" /* UIDs */
#define OVERUSE_MODEST "5d0c1f6e-8a2b-4c3d-9e4f-000000000002"
#define OVERUSE_STUCK  "5d0c1f6e-8a2b-4c3d-9e4f-000000000003"
#define OVERUSE_GUEST  "5d0c1f6e-8a2b-4c3d-9e4f-000000000004"
#define OVERUSE_INIT   "5d0c1f6e-8a2b-4c3d-9e4f-000000000005"

struct overuse_node {
    struct kubelet kubelet;
    pid_t greedy, modest;
};

/* Starts the processes and the kubelet. */
void overuse_node_start(struct overuse_node *n, bool mapped);
void overuse_node_stop(struct overuse_node *n);
/* What the pod greedy uses. */
void overuse_node_use(const struct overuse_node *n, long long gib);
/* Adds the pod `stuck`, which was promised 1 GiB and uses 7. Its process is the first one of
 * the machine, which is never killed. greedy then uses 5, and 1 is free. */
void overuse_node_add_stuck(struct overuse_node *n);
/* Adds the pod `guest`, which was promised nothing and uses 6 GiB. greedy then uses what it was
 * promised, and 1 GiB is free. Returns its process; the caller ends it. */
pid_t overuse_node_add_guest(struct overuse_node *n);
/* Adds the pod `starter` in its init container i, which the kubelet does not list. Its container c
 * was promised 2 GiB. Returns the process of i; the caller ends it. */
pid_t overuse_node_add_init(struct overuse_node *n);
/* i uses so much, the others what they were promised or less, and 1 GiB is free. */
void overuse_node_use_init(const struct overuse_node *n, pid_t init, long long gib);
/* Adds a process outside Kubernetes to the node. Returns its pid; the caller ends it. */
pid_t overuse_node_add_outside(void);
/* Whether /proc is that of the host; otherwise no process can be mapped. */
void overuse_node_map(bool mapped);
/* The options of scv-agent. */
#define OVERUSE_NODE_OPTIONS                                                             \
    "--update-interval", "100ms", "--podresources-socket",                               \
        lib_path("podresources.sock"), "--pods-interval", "1s", "--host-root",           \
        lib_path("root"), "--overuse-grace", "1s"
/* Ends the process unless it was killed before, and returns the signal that ended it:
 * SIGKILL or SIGUSR1. */
int overuse_node_signal(pid_t pid);
