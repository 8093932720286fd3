/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/*
 * Whether kube-scheduler's plugins NodeUnschedulable, TaintToleration and NodeAffinity
 * allow a pod on a node, from the objects of the API server. Pure. What is malformed or
 * unknown allows nothing.
 */

/* Do labels and name of the node match nodeSelector and the required node affinity? */
bool node_match_affinity(const json_t *pod_spec, const json_t *node);
/* Does the pod tolerate the node's taints with the effects NoSchedule and NoExecute?
 * `cordoned_too`: and that it is cordoned, which counts as the taint
 * node.kubernetes.io/unschedulable. */
bool node_match_taints(const json_t *pod_spec, const json_t *node, bool cordoned_too);
