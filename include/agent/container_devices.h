/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "domain/scv.h"

/*
 * Which container holds which devices, as the kubelet's podresources service says.
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

/* Copies what concerns GPUs, in an order of its own: by namespace, pod, container and
 * resource, one entry for each. A kubelet has an entry for each id (and for each NUMA
 * node of it) and no order at all, so that the same state looks different each time.
 * Everything is in the arena. */
void container_devices_normalize(const struct container_devices *from, struct arena *a,
                                 struct container_devices *to);

/* Fills scv->held with these, in the arena. Of which cards they are, the ids say; see
 * ids_is_of. */
void container_devices_to_scv(const struct container_devices *pods, struct scv *scv,
                              struct arena *a);

/* Is that a resource whose devices are published: a GPU of any kind? */
bool container_devices_is_gpu(struct span resource);
