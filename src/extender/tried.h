/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * The nodes that filter has answered to a pod, as the only one, without a bind since. What made
 * the pod fail there is often known to kube-scheduler alone: a volume, another extender, a plugin
 * at Permit, a Binding that the API server refuses. So filter answers them last. They are not
 * excluded, and forgotten after TRIED_MS.
 *
 * In the memory of this process, of a limited size. Any thread may call at any time.
 */

enum {
    TRIED_NODES = 8,   /* of a pod, the latest answers */
    TRIED_PODS = 4096, /* of more, the one with the oldest answer is forgotten */
    TRIED_MS = 5 * 60 * 1000,
};

struct tried;

/* What is known of a pod: names of nodes, hashed, the oldest answer first. */
struct tried_nodes {
    uint64_t node[TRIED_NODES];
    size_t n;
};

/* New. */
struct tried *tried_new(void);
void tried_free(struct tried *t);

/* `now_ms`: by the monotonic clock. A pod without a UID is never known. */
void tried_get(struct tried *t, struct span uid, int64_t now_ms, struct tried_nodes *out);
void tried_add(struct tried *t, struct span uid, struct span node, int64_t now_ms);
/* The pod is bound. */
void tried_forget(struct tried *t, struct span uid);

/* The position of the node among those; `n`: it is none of them. */
size_t tried_find(const struct tried_nodes *nodes, struct span node);
