/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A cell: network, mount and PID namespaces for a node on this machine. containerd, the
 * kubelet and the containers in it are invisible outside and end with the cell.
 *
 * The machine is left unchanged: the network has a loopback and one address for the
 * kubelet; the directories with built-in paths are empty and in memory; the kernel settings
 * that a kubelet writes are files of the cell. When the process that called cell_run ends,
 * even by SIGKILL, the kernel ends every process of the cell.
 */

#define CELL_ADDRESS "10.77.0.1"

/* Runs the function in a cell and returns its result. If no cell is possible, it
 * runs in this process, and cell_why_not has the reason. A machine may have several cells. */
int cell_run(int (*run)(void));
/* The reason why this process does not run in a cell; NULL: it does. */
const char *cell_why_not(void);
/* A directory on disk, and the name of a control group, that are removed with the cell. */
const char *cell_dir(void);
const char *cell_cgroup(void);
#define CELL_KUBERNETES "/etc/kubernetes"
#define CELL_STATIC     CELL_KUBERNETES "/manifests" /* the kubelet's static pods */
