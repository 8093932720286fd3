/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/podresources.h"

/*
 * Calls of the kubelet's podresources API over its Unix socket. Each call makes its own
 * connection and blocks for a few seconds at most. A call that the kubelet's rate limit
 * rejects (100 calls per second) is repeated for half a second.
 */

/* Fills *list; strings and arrays are in the arena. */
int podresources_client_list(const char *socket, struct arena *a,
                             struct podres_list *list, struct err *err);

/* The devices that the kubelet can allocate: those of healthy cards, allocated or not. Does
 * not disturb an allocation, unlike List. */
int podresources_client_allocatable(const char *socket, struct arena *a,
                                    struct podres_allocatable *devices, struct err *err);

enum podresources_result {
    PODRESOURCES_FOUND,       /* *pod is filled */
    PODRESOURCES_ABSENT,      /* the kubelet does not know the pod */
    PODRESOURCES_UNSUPPORTED, /* no Get, or it is disabled (before Kubernetes 1.34) */
    PODRESOURCES_FAILED,
};

/* Get of one pod. `err` has the reason unless the result is PODRESOURCES_FOUND. */
enum podresources_result podresources_client_get(const char *socket, struct span ns,
                                                 struct span name, struct arena *a,
                                                 struct podres_pod *pod, struct err *err);
