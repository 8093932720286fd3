/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "domain/ids.h"
#include "domain/scv.h"
#include "node/usage.h"

/*
 * The devices of each container, as the kubelet's podresources API returns them. Pure.
 */

struct container_devices_entry {
    struct span ns, pod, container, resource;
    const struct span *ids; /* device ids */
    size_t n_ids;
};

/* How many devices the kubelet can allocate on a card. */
struct container_devices_units {
    struct ids_tag tag; /* of the card */
    int64_t n;
};

/* What a plain init container has of a card (agent/init_devices.h), and the sidecars of its
 * pod: units of aliyun.com/gpu-mem. */
struct container_devices_init {
    struct span pod_uid, ns, pod, container;
    struct span uuid; /* of the card */
    bool whole;       /* aliyun.com/gpu-count: all of it */
    int64_t units, beside;
};

struct container_devices {
    const struct container_devices_entry *entries;
    size_t n;
    /* aliyun.com/gpu-mem, one for each card; none: not asked, or not known. The other
     * functions of this module do not read them. */
    const struct container_devices_units *units;
    size_t n_units;
    /* Every container that the kubelet lists, also without devices; not read either. */
    const struct usage_listed *listed;
    size_t n_listed;
    const struct container_devices_init *inits; /* not read either */
    size_t n_inits;
    bool inits_known; /* false: they could not be read */
    int64_t asked_ms; /* monotonic time when the kubelet was asked; not read either */
};

/* Copies the entries of GPU resources, sorted by namespace, pod, container and resource,
 * one entry for each. A kubelet returns an entry for each id and NUMA node, in no fixed
 * order: without this, the same state would differ in each answer. Everything is in the
 * arena. */
void container_devices_normalize(const struct container_devices *from, struct arena *a,
                                 struct container_devices *to);

/* Sets scv->held, in the arena. The cards follow from the device ids; see ids_match_card. */
void container_devices_to_scv(const struct container_devices *devices, struct scv *scv,
                              struct arena *a);

/* Counts the ids of aliyun.com/gpu-mem by card; in the arena. */
void container_devices_count(const struct container_devices_entry *allocatable, size_t n,
                             struct arena *a, struct container_devices *to);
/* The size of a unit on a card of `total_mib`: the power of two of which the card has `n`;
 * -1: none. */
int64_t container_devices_unit_mib(int64_t total_mib, int64_t n);

/* Whether devices of the resource are published: GPUs of any kind. */
bool container_devices_is_gpu(struct span resource);
