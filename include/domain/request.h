/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "domain/limits.h"
#include "domain/pod.h"

/*
 * What a pod asks for, worked out from its container limits, labels and annotations.
 *
 *   gpu-mem: n              n units of memory on one card, shared with other pods
 *   ... and gpu-count: k    (label or annotation) the n units evenly over k cards
 *   gpu-count: k            (limit) k whole cards
 *   nvidia.com/gpu: k       (limit) k whole cards that NVIDIA's device plugin chooses
 *   scv/number, scv/memory  (labels; no limit) that many cards, MiB on each
 *
 * Beside any of these, the annotation gpu.model and the label scv/clock say which cards
 * will do. Labels beside a limit must not ask for more than it.
 *
 * Limits of several containers add up as in Kubernetes (domain/limits.h).
 */

enum request_kind {
    REQUEST_NONE,    /* asks for nothing of ours */
    REQUEST_MEMORY,  /* memory on shared cards */
    REQUEST_CARDS,   /* whole cards, exclusive */
    REQUEST_DEVICES, /* nvidia.com/gpu: which cards is the kubelet's choice, not ours */
};

enum request_placement { PLACE_BINPACK, PLACE_SPREAD };

enum {
    REQUEST_MAX_CARDS = 64,   /* cards of one node that one pod can ask for */
    REQUEST_MAX_MODELS = 256, /* bytes of the annotation */
};

/* How the cluster's operator wants requests to be read. */
struct request_rules {
    int64_t unit_mib;   /* of aliyun.com/gpu-mem */
    bool clock_exact;   /* scv/clock is that clock, as for Yoda; else: at least that */
    bool number_shares; /* scv/number without scv/memory: healthy cards, and nothing of
                           them is reserved, as for Yoda; else: whole cards */
};

/* What a container that runs beside the others gets; for the allocation annotation. */
struct request_part {
    uint32_t index;
    int64_t amount;   /* units of memory, or cards */
    struct span name; /* of the container; lives as long as the part */
};

struct request {
    enum request_kind kind;
    enum request_placement placement;
    uint32_t cards;       /* different cards, at least 1 unless NONE */
    int64_t units;        /* MEMORY: of the whole pod; a multiple of cards */
    int64_t mib_per_card; /* MEMORY; CARDS, DEVICES: the least size of a card, or 0 */
    bool by_label;        /* it comes from labels: the MiB are no multiple of the unit,
                             and `units` are rounded up */
    uint32_t devices; /* of nvidia.com/gpu beside another kind: only in a bound pod whose
                         request is invalid */
    bool clock_exact;
    int64_t clock_mhz;          /* of the card's memory, at least; 0: any */
    struct span models;         /* any of this comma list; empty: any model */
    struct request_part *parts; /* app containers and sidecars that ask */
    size_t n_parts;
};

/* Works out the request. -1 when the pod asks for something that cannot be meant: the
 * message is for the pod's owner. `parts` and `models` are in the arena. */
int request_of(const struct pod *pod, const struct request_rules *rules, struct arena *a,
               struct request *request, struct err *err);

/* What limits alone ask for, with no check of the rest of the pod: one card, unless they
 * ask for whole cards. This is what a bound pod with an invalid request counts for. */
void request_of_limits(const struct limits *limits, const struct request_rules *rules,
                       struct request *request);

/* How many devices of nvidia.com/gpu, of any kind of request. */
static inline uint32_t request_devices(const struct request *r)
{
    return r->kind == REQUEST_DEVICES ? r->cards : r->devices;
}

/* Will only some cards do, by their model or clock? */
static inline bool request_is_selective(const struct request *r)
{
    return r->models.n > 0 || r->clock_mhz > 0;
}

/* Is every node right, as far as we are concerned? */
static inline bool request_fits_anywhere(const struct request *r)
{
    return r->kind == REQUEST_NONE ||
           (r->kind == REQUEST_DEVICES && !request_is_selective(r) && r->mib_per_card == 0);
}

/* Would a card of that model and memory clock (0: not known) do? */
bool request_accepts_card(const struct request *r, struct span model, int64_t clock_mhz);

/* Do they ask for the same? The parts do not matter. */
bool request_equal(const struct request *a, const struct request *b);

/* A short form for messages: "8 GiB", "8 GiB on 2 cards", "2 whole cards". */
void request_write(struct buf *out, const struct request *request, int64_t unit_mib);
