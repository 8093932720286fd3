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

/* Where they come from. `list` fills *pods with all entries; strings and arrays are in
 * the arena. It may block for some seconds, and is called by one thread at a time. NULL
 * functions: there is no source. */
struct pods_source {
    int (*list)(void *ctx, struct arena *a, struct pods *pods, struct err *err);
    void *ctx;
};

/* Fills scv->held with those that hold GPUs, in the arena. A card is known by an id that
 * is its UUID, or has it in front of a hyphen. */
void pods_held(const struct pods *pods, struct scv *scv, struct arena *a);

/* Is that a resource whose devices are published: a GPU of any kind? */
bool pods_is_gpu(struct span resource);
