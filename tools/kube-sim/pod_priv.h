/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/jsonx_priv.h"
#include "kube-sim/status_priv.h"

/* What is special about pods. The first two are functions for struct kind. */

void sim_pod_fill(json_t *pod);
void sim_pod_check(const json_t *pod, const json_t *old, struct faultlist *f);

/* Seconds that a deletion waits: `asked` (negative: not asked), else the pod's own; none
 * for pods that no kubelet has, or that have ended. */
int64_t sim_pod_grace_s(const json_t *pod, int64_t asked);

/* Sets or replaces a condition of the status; its time of transition moves only when its
 * status changes. */
/* A new pod that waits for its gates to open says so. */
void sim_pod_gate(json_t *pod, int64_t now_ms);
void sim_pod_set_condition(json_t *pod, const char *type, const char *status,
                           int64_t now_ms);

/* What the kubelet would write when all containers have started. */
void sim_pod_run(json_t *pod, int64_t now_ms);
