/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "domain/scv.h"

/*
 * Which container holds which devices, as the kubelet's podresources service says.
 */

struct pods_entry {
    struct span ns, pod, container, resource;
    const struct span *ids; /* device ids */
    size_t n_ids;
};

struct pods {
    const struct pods_entry *entries;
    size_t n;
};

/* Fills scv->held with those that hold GPUs, in the arena. The cards are known where
 * the id is a UUID, or one with a number behind it (as NVIDIA's plugin shares cards). Ids
 * of the Go plugin, <UUID>-_-<n>, say nothing about the card. */
void pods_held(const struct pods *pods, struct scv *scv, struct arena *a);

/* Is that a resource whose devices are published: a GPU of any kind? */
bool pods_is_gpu(struct span resource);
