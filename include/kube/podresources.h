/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Decoders and encoders for the messages of the kubelet's podresources API, v1, which
 * reports the devices of each container. They behave like those of kube/deviceplugin.h;
 * names and ids are not restricted, because they include those of other plugins.
 *
 * CPUs, memory and dynamic resources are skipped. The kubelet sends one entry per
 * resource and NUMA node, so a resource can occur several times. It limits the rate to
 * 100 calls a second (RESOURCE_EXHAUSTED). `Get` is enabled by default since
 * Kubernetes 1.34; before, it returns UNIMPLEMENTED or FAILED_PRECONDITION.
 */

#define PODRES_SOCK        "pod-resources/kubelet.sock" /* in the kubelet's --root-dir */
#define PODRES_LIST        "/v1.PodResourcesLister/List"
#define PODRES_GET         "/v1.PodResourcesLister/Get"
#define PODRES_ALLOCATABLE "/v1.PodResourcesLister/GetAllocatableResources"

enum { PODRES_MESSAGE_MAX = 16 << 20 }; /* for grpcc_request.max_message */

struct podres_devices {
    struct span resource;
    const struct span *ids;
    size_t n_ids;
    const int64_t *numa; /* NUMA nodes of the ids */
    size_t n_numa;
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
int podres_list_decode(struct span bytes, struct arena *a, struct podres_list *out,
                       struct err *err);
int podres_list_encode(const struct podres_list *m, struct buf *out, struct err *err);

/* Get. A response without a pod is ERR_INVALID: for an unknown pod, the kubelet returns
 * NOT_FOUND. */
int podres_get_request_encode(struct span ns, struct span name, struct buf *out,
                              struct err *err);
int podres_get_request_decode(struct span bytes, struct arena *a, struct span *ns,
                              struct span *name, struct err *err);
int podres_get_decode(struct span bytes, struct arena *a, struct podres_pod *out,
                      struct err *err);
int podres_get_encode(const struct podres_pod *m, struct buf *out, struct err *err);

/* AllocatableResourcesResponse: the devices of the node; the request is empty. */
struct podres_allocatable {
    const struct podres_devices *devices;
    size_t n;
};
int podres_allocatable_decode(struct span bytes, struct arena *a,
                              struct podres_allocatable *out, struct err *err);
int podres_allocatable_encode(const struct podres_allocatable *m, struct buf *out,
                              struct err *err);
