/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "domain/pod.h"

/*
 * The gang of a pod: the pods that start together or not at all. The pod itself names it. How
 * many must start is in another object, if the pod does not say it (kube/pod_group.h). The
 * first of these that the pod has names the gang:
 *
 *   spec.schedulingGroup   a PodGroup of scheduling.k8s.io; Kubernetes 1.36 and later, gate
 *                          GenericWorkload (k8s.io/api v0.37.2, core/v1
 *                          PodSchedulingGroup.PodGroupName)
 *   spec.workloadRef       a Workload, its pod group and the replica of that; 1.35 only
 *                          (k8s.io/api v0.35.4, core/v1 WorkloadReference)
 *   labels                 of the coscheduling plugin: scheduling.x-k8s.io/pod-group, and
 *                          pod-group.scheduling.sigs.k8s.io(/name) of older releases
 *   label                  kueue.x-k8s.io/pod-group-name
 *   annotations            scheduling.volcano.sh/group-name, scheduling.k8s.io/group-name
 *
 * Only pods of one namespace form a gang, because each of these objects belongs to a
 * namespace, and tenants write all of them.
 */

enum gang_kind {
    GANG_NONE,
    GANG_POD_GROUP,
    GANG_WORKLOAD,
    GANG_COSCHEDULING,
    GANG_KUEUE,
    GANG_VOLCANO,
    GANG_KINDS,
};

struct gang {
    enum gang_kind kind;
    struct span name;
    struct span group, replica; /* WORKLOAD: within the Workload; replica may be empty */
    /* How many members must have a place before any starts, if the pod says so: annotation
     * gpushare/gang-minimum, else the label of the old coscheduling plugin or the annotation
     * of Kueue. 0: unknown, all members. */
    uint32_t minimum;
};

/* False: the pod is in no gang; so is a pod whose minimum is 1, which waits for
 * nobody. The strings are borrowed from the pod. Of a pod that gang_check refuses: a name that
 * no object can have names no gang, and a minimum that cannot be read is unknown. */
bool gang_of(const struct pod *pod, struct gang *gang);

/* The namespace and the gang of a key; borrowed from it. The minimum is 0. */
void gang_of_key(struct span key, struct span *ns, struct gang *gang);

/* -1, with a message for the pod's owner: what the pod says of its gang cannot be read. So it
 * must not start: nobody knows how many others must start with it. That is
 *   - a name that no object can have (an empty one is none, as for the systems above);
 *   - a minimum that is no whole number from 1 on, or above INT32_MAX, the type of all these
 *     fields. It is the one that counts: that of gpushare/gang-minimum is instead of another;
 *   - without the name of a gang: a minimum above 1, or gpushare/topology: gang. */
int gang_check(const struct pod *pod, struct err *err);

/* Appends a key that is equal for the members of one gang, and different for others. */
void gang_key(struct buf *out, struct span ns, const struct gang *gang);
