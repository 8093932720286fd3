/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * The container and pod of a process, from the text of /proc/PID/cgroup. Pure.
 *
 * The kubelet makes one cgroup for each pod, and the runtime one in it for each container:
 *
 *     cgroupfs   .../kubepods/burstable/pod<UID>/<ID>
 *     systemd    .../kubepods-burstable-pod<UID>.slice/cri-containerd-<ID>.scope
 *     both       .../kubepods-burstable-pod<UID>.slice:cri-containerd:<ID>
 *
 * (pkg/kubelet/cm/cgroup_manager_linux.go; the last one is a kubelet with the systemd
 * driver over a containerd with the cgroupfs driver.) systemd's names have '_' for each
 * '-' of the UID. CRI-O has crio-<ID>.scope, cri-dockerd docker-<ID>.scope. A guaranteed
 * pod is one level higher. Containers can have cgroups in theirs, and a cluster can run
 * in containers of another one (kind, k3s): the outermost pod counts, because only that
 * part of the path is out of the container's reach.
 *
 * The kernel writes the path from the root of the reader's cgroup namespace, so it can
 * start with "/../../" and lack the components that reader and process have in common.
 */

enum {
    PROCESS_CONTAINER_TEXT = 64 * 1024, /* longest text; cgroup v1 has some 14 lines */
    PROCESS_CONTAINER_ID = 129,         /* with the NUL; runtimes have 64 characters */
};

enum process_container_kind {
    PROCESS_CONTAINER_NONE,    /* in no pod */
    PROCESS_CONTAINER_FOUND,   /* in one */
    PROCESS_CONTAINER_UNCLEAR, /* malformed, or its lines name different ones */
};

struct process_container {
    enum process_container_kind kind;
    /* Of PROCESS_CONTAINER_FOUND: letters, digits and '-'. Static pods have a hash as
     * UID, not that of the API. */
    char pod_uid[PROCESS_CONTAINER_ID];
    char id[PROCESS_CONTAINER_ID]; /* hex digits; empty: in the pod's cgroup itself */
};

struct process_container process_container_of(struct span text);
