/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/program.h"

/*
 * A simulated control plane node of kubeadm for scripts/install: a folder lib_dir/root
 * with the node's files, and root/proc for those of its processes.
 */

#define NODE_FILES_MANIFESTS "root/etc/kubernetes/manifests"
#define NODE_FILES_MANIFEST  NODE_FILES_MANIFESTS "/kube-scheduler.yaml"
#define NODE_FILES_CONFIG    "root/etc/kubernetes/kube-scheduler-config.yaml"

/* A node of kubeadm with that release of Kubernetes; kube-scheduler serves /healthz on `port`
 * (0: the default). */
void node_files_make(const char *release, unsigned port);
/* The configuration with plain HTTP, for an extender with --insecure. Kept. */
char *node_files_without_tls(const char *config);
/* Starts scripts/install on this node. */
void node_files_begin(struct program *p, const char *const *options);
/* Runs it; status -1: any. Returns its output, kept. */
char *node_files_install(int status, const char *const *options);
