/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/gang.h"
#include "kube/client.h"

/*
 * The object that a gang's pods name: how many members need a place before any starts.
 *
 *   PodGroup    scheduling.k8s.io v1alpha2 (Kubernetes 1.36), v1alpha3 and v1beta1 (1.37):
 *               spec.schedulingPolicy, gang.minCount or basic (k8s.io/api v0.37.2)
 *   Workload    scheduling.k8s.io v1alpha1 (1.35): the same below spec.podGroups[].policy
 *   PodGroup    scheduling.x-k8s.io v1alpha1, of the coscheduling plugin: spec.minMember
 *   PodGroup    scheduling.volcano.sh v1beta1: spec.minMember
 */

struct pod_group_reader {
    /* As kube_ask. */
    int (*call)(void *ctx, const struct kube_request *request, struct httpc_reply *reply,
                struct err *err);
    void *call_ctx;
    int64_t (*now_ms)(void); /* a monotonic clock */
};
/* Reads the object, within timeout_ms for all versions together. *minimum: the members that
 * need a place at once. 1: they do not wait for each other (policy basic). 0: there is no
 * object, or it does not say. -1: *minimum is unchanged. With ERR_INVALID the object says
 * something that is no number from 1 to INT32_MAX, or no object can have the gang's name; the
 * message is for the pod's owner. With any other code the object could not be read. */
int pod_group_read(const struct pod_group_reader *from, struct span ns,
                   const struct gang *gang, int64_t timeout_ms, uint32_t *minimum,
                   struct err *err);
