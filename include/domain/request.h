/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "domain/pod.h"

/*
 * What a pod asks for, worked out from its container limits, labels and annotations.
 *
 *   gpu-mem: n              n units of memory on one card, shared with other pods
 *   ... and gpu-count: k    (label or annotation) the n units evenly over k cards
 *   gpu-count: k            (limit) k whole cards
 *
 * Containers are added up as Kubernetes does: app containers and sidecars together, a
 * plain init container for itself with the sidecars that started before it; the larger
 * counts.
 */

enum request_kind {
    REQUEST_NONE,   /* asks for nothing of ours */
    REQUEST_MEMORY, /* memory on shared cards */
    REQUEST_CARDS,  /* whole cards, exclusive */
};

enum request_placement { PLACE_BINPACK, PLACE_SPREAD };

enum {
    REQUEST_MAX_CARDS = 64, /* cards of one node that one pod can ask for */
};

/* What a container that runs beside the others gets; for the allocation annotation. */
struct request_part {
    uint32_t index;
    int64_t amount; /* units of memory, or cards */
};

struct request {
    enum request_kind kind;
    enum request_placement placement;
    uint32_t cards;             /* different cards, at least 1 unless NONE */
    int64_t units;              /* MEMORY: of the whole pod; a multiple of cards */
    int64_t mib_per_card;       /* MEMORY */
    struct request_part *parts; /* app containers and sidecars that ask */
    size_t n_parts;
};

/* Works out the request; `unit_mib` is the unit of gpu-mem. -1 when the pod asks for
 * something that cannot be meant: the message is for the pod's owner. `parts` is in the
 * arena. */
int request_of(const struct pod *pod, int64_t unit_mib, struct arena *a,
               struct request *request, struct err *err);

/* A short form for messages: "8 GiB", "8 GiB on 2 cards", "2 whole cards". */
void request_write(struct buf *out, const struct request *request, int64_t unit_mib);
