/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * A simulated control plane node of kubeadm for scripts/install: a folder lib_dir/root
 * with the node's files, and lib_dir/proc with the files of a kube-scheduler process.
 */

#define NODE_FILES_MANIFESTS "root/etc/kubernetes/manifests"
#define NODE_FILES_MANIFEST  NODE_FILES_MANIFESTS "/kube-scheduler.yaml"
#define NODE_FILES_CONFIG    "root/etc/kubernetes/kube-scheduler-config.yaml"
#define NODE_FILES_OPTION    "--config=/etc/kubernetes/kube-scheduler-config.yaml"
/* Larger than any process id of the kernel: `kill` hits no process. */
#define NODE_FILES_PID "4999999"

/* The text with the first `from` replaced; takes the text. */
char *node_files_swap(char *text, const char *from, const char *to);
/* Adds a process that started `from_now_s` seconds from now, with the options of
 * kubeadm's manifest, `more` (or NULL) and the port of its health check (0: none). */
void node_files_add_process(int64_t from_now_s, const char *more, unsigned port);
/* A node of kubeadm; kube-scheduler serves /healthz on `port` (0: the default). */
void node_files_make(unsigned port);
/* The node after an installation with this urlPrefix; without TLS for http://. */
void node_files_make_installed(const char *url);
/* Runs scripts/install; status -1: any. Returns its output, new. */
char *node_files_install(int status, const char *const *options);
/* Its output has the text. */
void node_files_says(int status, const char *text, const char *const *options);
/* Runs --check without the API server. */
#define NODE_FILES_CHECK ARGV("--check", "--no-cluster")
char *node_files_check(int status);
/* urlPrefix of an extender at that port. New. */
char *node_files_url(unsigned port);
/* Mode and content of a file below lib_dir, or "absent". New. */
char *node_files_state(const char *path);
