/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/*
 * A real kubelet with containerd, runc and the CNI plugins, in the cell of this process
 * (e2e-node/cell.h), as programs of the cluster.
 */

/* Does containerd know CDI? Version 2 does; it is used unless E2E_K8S is a release whose
 * kubelet runs with Debian's 1.6. */
bool real_has_cdi(void);
/* Starts them and runs one container; the Node has these labels ("a=b,c=d", or "").
 * The error names the step that failed. */
int real_start(const char *labels, struct err *err);
/* Before real_start: the program that containerd runs instead of runc, which is in its PATH;
 * borrowed. Only in the process that calls real_start. */
void real_set_runtime(const char *program);
/* The same for further lines of the kubelet's configuration; borrowed. */
void real_configure(const char *lines);
/* Imports the images of an OCI layout archive into containerd. */
int real_import(const char *archive, struct err *err);
/* Runs ctr in the namespace of the kubelet. Returns its output, kept; NULL: an error. */
char *real_ctr(const char *const *args, struct err *err);
/* Runs `runc update`, which sets the control group of a container again. */
void real_update(const char *id);
/* Starts kube-proxy: pods and programs of the node reach Services, and node ports on
 * 127.0.0.1. */
int real_start_proxy(struct err *err);
void real_stop(void);
/* Waits until the kubelet answers and its Node is Ready. */
void real_wait_ready(void);
/* The output of the container: its environment, line by line, kept; NULL: incomplete. The pod
 * may have been deleted. */
char *real_log(const char *pod, const char *uid, const char *container);
