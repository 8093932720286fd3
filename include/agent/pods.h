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

/* Copies what concerns GPUs, in an order of its own: by namespace, pod, container and
 * resource, one entry for each. A kubelet has an entry for each id (and for each NUMA
 * node of it) and no order at all, so that the same state looks different each time.
 * Everything is in the arena. */
void pods_keep(const struct pods *from, struct arena *a, struct pods *to);

/* Fills scv->held with these, in the arena. Of which cards they are, the ids say; see
 * ids_match_card. */
void pods_held(const struct pods *pods, struct scv *scv, struct arena *a);

/* Is that a resource whose devices are published: a GPU of any kind? */
bool pods_is_gpu(struct span resource);
