/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/proto.h"

/*
 * Calls of the kubelet's podresources API, v1, which reports the devices of each container.
 * A malformed answer is ERR_INVALID (kube/proto.h); names and ids are not restricted, because
 * they include those of other plugins.
 *
 * Each call makes its own connection to the Unix socket and blocks for a few seconds at
 * most. A call that the kubelet's rate limit rejects is repeated for half a second.
 *
 * CPUs, memory, topology and dynamic resources are skipped. The kubelet sends one entry per
 * resource and NUMA node, so a resource can occur several times. It limits the rate to
 * 100 calls a second (RESOURCE_EXHAUSTED). `Get` is enabled by default since
 * Kubernetes 1.34; before, it returns UNIMPLEMENTED or FAILED_PRECONDITION.
 */

#define PODRES_LIST "/v1.PodResourcesLister/List"
#define PODRES_GET  "/v1.PodResourcesLister/Get"
#define PODRES_ALL  "/v1.PodResourcesLister/GetAllocatableResources"

enum { PODRES_MESSAGE_MAX = 16 << 20 }; /* bytes of an answer */

struct podres_devices {
    struct span resource;
    const struct span *ids;
    size_t n_ids;
};
struct podres_container {
    struct span name;
    const struct podres_devices *devices;
    size_t n_devices;
};
struct podres_pod {
    struct span name, ns;
    const struct podres_container *containers; /* app and restartable init containers */
    size_t n_containers;
};

/* ListPodResourcesResponse; the request is empty. */
struct podres_list {
    const struct podres_pod *pods;
    size_t n;
};

/* AllocatableResourcesResponse: the healthy devices of each resource; the request is empty. */
struct podres_allocatable {
    const struct podres_devices *devices;
    size_t n;
};

struct podres_get_request {
    struct span name, ns;
};

/* Tests speak the kubelet's side with them. */
extern const struct proto_type podres_list_type, podres_get_request_type, podres_get_type,
    podres_allocatable_type;

/* Fills *list; strings and arrays are in the arena. */
int podresources_client_list(const char *socket, struct arena *a,
                             struct podres_list *list, struct err *err);

/* Fills *all. Success with no devices: the kubelet does not implement it (before Kubernetes 1.23,
 * where it is disabled). */
int podresources_client_allocatable(const char *socket, struct arena *a,
                                    struct podres_allocatable *all, struct err *err);

enum podresources_result {
    PODRESOURCES_FOUND,       /* *pod is filled */
    PODRESOURCES_ABSENT,      /* the kubelet does not know the pod */
    PODRESOURCES_UNSUPPORTED, /* no Get, or it is disabled (before Kubernetes 1.34) */
    PODRESOURCES_FAILED,
};

/* Get of one pod. A response without a pod is PODRESOURCES_FAILED: for an unknown pod, the
 * kubelet returns NOT_FOUND. `err` has the reason unless the result is PODRESOURCES_FOUND. */
enum podresources_result podresources_client_get(const char *socket, struct span ns,
                                                 struct span name, struct arena *a,
                                                 struct podres_pod *pod, struct err *err);
