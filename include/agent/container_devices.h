/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "domain/scv.h"

/*
 * The devices of each container, as the kubelet's podresources API returns them. Pure.
 */

struct container_devices_entry {
    struct span ns, pod, container, resource;
    const struct span *ids; /* device ids */
    size_t n_ids;
};

struct container_devices {
    const struct container_devices_entry *entries;
    size_t n;
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

/* Whether devices of the resource are published: GPUs of any kind. */
bool container_devices_is_gpu(struct span resource);
