/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/cluster.h"

/* Looks into containers of the real kubelet and at their control groups. */

/* Runs the guest in container "c" of the pod: "devices" or "files" (test/e2e-node/guest).
 * Returns its output, kept. */
char *inside_run(const char *pod, const char *what, const char *dir);

/* The indexes of the pod's cards in the ledger, which are their minors, as a set. */
unsigned inside_cards(const char *pod);
/* Fails unless the container has exactly the device files of these cards, and its control
 * group lets it open exactly the cards `open`. From bit NODE_CARDS on, both sets have the
 * capability files of inside_make_driver. */
void inside_check_opens(const char *pod, unsigned cards, unsigned open);

/* Kills the process of the container. */
void inside_kill(const char *pod);
/* Runs `runc update` on the container, as a kubelet with the static CPU manager makes it run. */
void inside_update(const char *pod);

/* With cgroup v1: lets the container open a device behind the back of its runtime, as
 * NVIDIA's container runtime does it. Minor of NVIDIA's major. */
void inside_allow(const char *pod, int minor);
/* With cgroup v1: sets the devices again that the container's specification names, and no
 * others, as systemd does it after a daemon-reload. */
void inside_restore(const char *pod);
/* Is it cgroup v1? */
bool inside_has_lists(void);

/*
 * The root of a driver container in the folder of the cell: device nodes with NVIDIA's
 * numbers, behind which there is no driver, and libraries, each of which is the fake NVML.
 */

#define DRIVER_VERSION   "535.129.03" /* that of node_write_cards */
#define DRIVER_LIBRARIES "/usr/lib/x86_64-linux-gnu"

/* nvidia-cap4 to nvidia-cap7 have the numbers of cards 4 to 7, which are not there, so that the
 * guest tries to open them. */
enum { INSIDE_CAPS = 4 };

/* Makes it unless an earlier test of the suite has. Returns its path, kept. */
char *inside_make_driver(void);
/* Its libraries, and NVML, are those of this driver from now on. `nvml`: the library. */
void inside_change_driver(const char *version, const char *nvml);
