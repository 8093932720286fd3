/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"

/*
 * A real kubelet with containerd, runc and the CNI plugins, in the cell of this process
 * (node/cell.h), as programs of the cluster.
 */

/* Starts them and runs one container. The error names the step that failed. */
int real_start(struct err *err);
void real_stop(void);
/* Waits until the kubelet answers and its Node is Ready. */
void real_wait_ready(void);
/* As node_log. */
char *real_log(const char *pod, const char *uid, const char *container);
