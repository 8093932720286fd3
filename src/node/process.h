/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/usage.h"

/*
 * The processes of the host: in which container each runs, how that container is called, and
 * how one process is killed. Functions read the folders of the host below `host_root`: "" or
 * "/", or a mount of the host's root.
 */

/*
 * The names of the containers of a node, from the names of the links that the kubelet
 * makes in /var/log/containers when it starts a container:
 *
 *     <pod>_<namespace>_<container>-<container ID>.log
 *
 * (pkg/kubelet/kuberuntime/legacy.go.) Only root writes there, and no part but the ID has
 * hex digits after its last '-' that could be taken for one. A name of more than 255
 * bytes is cut before its end and lacks a part of the ID. Then the target of the link has the
 * names, and the UID of the pod:
 *
 *     /var/log/pods/<namespace>_<pod>_<pod UID>/<container>/<n>.log
 *
 * The kubelet removes the link with the container.
 */

#define PROCESS_NAMES_FOLDER "var/log/containers"

/* Reads the folder in `host_root`, at most USAGE_MAX_IDS links. Strings and the array are
 * in the arena. */
int process_names_read(const char *host_root, struct arena *a,
                       const struct usage_name **names, size_t *n, struct err *err);

/*
 * Reads where processes run, from the /proc of the host.
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
 * part of the path is out of the container's reach. Static pods have a hash as UID, not that
 * of the API.
 *
 * The kernel writes the path from the root of the reader's cgroup namespace, so it can
 * start with "/../../" and lack the components that reader and process have in common.
 *
 * NVML has pids of the host, so /proc must be that of the first PID namespace: the pod has
 * hostPID, or the host's /proc is mounted. Elsewhere a pid may be that of another process;
 * then every process is USAGE_UNMAPPED.
 *
 * cgroup v1 moves a main thread that exits to the root. Its process is where its other threads
 * are.
 *
 * A pid can end and be reused at any time: the start time must be the same before and after
 * the cgroup is read.
 */

/* Whether /proc is that of the host. The reason is in `err`. */
int process_check_host(const char *host_root, struct err *err);

/* Reads the places of the processes of the sample, each pid once, by rising pid. Cards in
 * MIG mode are left out. Arrays and strings are in the arena. */
void process_places(const char *host_root, const struct gpu_sample *s, struct arena *a,
                    struct usage_place **places, size_t *n);

/* The pid in its own pid namespace; -1: it has ended, or is not known. */
int64_t process_pid_in_namespace(const char *host_root, const struct usage_pid *pid);

/*
 * The cgroups that the kubelet and the runtime made, of cgroup v2: those of containers, and those
 * of pods, which have no container_id. Not those of a runtime's monitor (conmon), and not those
 * that containers make in theirs.
 */
struct process_cgroup {
    struct span pod_uid, container_id;
    const char *path; /* absolute, from `root` on */
    const char
        *leaf; /* of a container: where the runtime started it; `path`, or one in it */
};

/* Reads the folders below `root`, the host's /sys/fs/cgroup, of the pods that are wanted. In the
 * arena. ERR_NOT_FOUND: it is no cgroup v2. ERR_TOO_LARGE: it has more folders than are looked at.
 * On an error *n is 0. */
int process_cgroups(const char *root, bool (*wants)(void *ctx, struct span pod_uid),
                    void *ctx, struct arena *a, const struct process_cgroup **list,
                    size_t *n, struct err *err);

/*
 * Kills one process that was measured before, and never another one that got its pid since:
 * a pidfd is opened first, then the start time is compared, then the signal goes to the
 * pidfd. A pidfd refers to one process for good, so whatever ends or starts in between, the
 * process that was compared is the one that gets the signal, or none does.
 *
 * Needs CAP_KILL for processes of other users, and pids of this PID namespace: it reads
 * /proc itself, which the pids of signals are of. Where the pid was measured in another
 * namespace, the start times differ, and nothing is killed.
 */

/* Sends SIGKILL. -1: it was not sent; ERR_NOT_FOUND: the process has ended; ERR_FORBIDDEN:
 * CAP_KILL is missing; ERR_INVALID: init or this process itself. */
int process_kill(const struct usage_pid *pid, struct err *err);
