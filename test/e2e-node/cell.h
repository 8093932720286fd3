/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A cell for a node on this machine: a process tree with a network, mounts and process
 * numbers of its own, so that what runs in it (containerd, the kubelet, containers and
 * what they leave behind) is seen by nobody outside and ends with it, whatever happens.
 *
 * The machine keeps nothing: the network has a loopback, and an address that a kubelet
 * takes; the directories whose places a kubelet and containerd have built in are empty
 * ones in memory; and the kernel's switches that a kubelet turns are files of ours. When
 * the process that called cell_run ends, even by SIGKILL, the kernel ends all the rest.
 */

#define CELL_ADDRESS "10.77.0.1"

/* Runs the function in a cell and returns what it returned. Where there can be no cell,
 * or E2E_NODE=fallback, it runs here, and cell_why_not says why. One cell at a time on a
 * machine: this waits for another one's end. */
int cell_run(int (*run)(void));
/* NULL: this runs in a cell. */
const char *cell_why_not(void);
/* A directory on the disk that goes with the cell; and the name of a group of control
 * groups that does. */
const char *cell_dir(void);
#define CELL_STATIC "static" /* in it, where a kubelet finds static pods */
const char *cell_cgroup(void);
