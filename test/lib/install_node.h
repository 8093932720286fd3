/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/cluster.h"

/*
 * scripts/install on a folder with the files of a control plane node, against the real
 * cluster of the suite. The processes are those of this machine.
 */

extern char *install_node_root; /* the folder; set it before the functions below */

/* Replaces the first `from` in a file of the node by `to`. */
void install_node_change(const char *path, const char *from, const char *to);
/* Runs a command, or scripts/install. `status` -1: any. Returns the output, new. */
char *install_node_command(int status, const char *const *argv);
char *install_node_run(int status, const char *const *options);
/* A port that nobody listens on now. */
unsigned install_node_port(void);

bool install_node_has_card(const char *pod);
/* Does Secret gpushare-scheduler-tls exist? */
bool install_node_has_secret(void);
/* cluster.extender with the certificate of the Secret (kube-scheduler's), or without. */
void install_node_connect(bool kube_scheduler);
/* Waits until --check reports no problem. */
void install_node_wait_clean(void);
