/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/jsonx_priv.h"
#include "kube-sim/status_priv.h"

/* Pods. The first two are functions for struct kind. */

void sim_pod_fill(json_t *pod);
void sim_pod_check(const json_t *pod, const json_t *old, struct faultlist *f);

/* Grace period of a deletion in seconds: `asked`, or the pod's own if `asked` is negative.
 * 0 for pods without a node, and for pods that have ended. */
int64_t sim_pod_grace_s(const json_t *pod, int64_t asked);

/* Sets the condition SchedulingGated of a new pod with scheduling gates. */
void sim_pod_gate(json_t *pod, int64_t now_ms);
/* Sets a condition; lastTransitionTime changes only with the condition's status. */
void sim_pod_set_condition(json_t *pod, const char *type, const char *status,
                           int64_t now_ms);

/* Sets the status that the kubelet writes when all containers have started. */
void sim_pod_run(json_t *pod, int64_t now_ms);
