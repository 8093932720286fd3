/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/dialect.h"
#include "domain/ids.h"
#include "domain/promise.h"
#include "node/cards.h"

/*
 * What a pod of this node is entitled to: its containers that request our resources, in
 * the order of admission, each with its share of the cards promised in the annotations.
 *
 * The kubelet requests each container and resource in turn: init containers (including
 * sidecars) in the order of the spec, then the app containers.
 */

/* The units of a share are those of gpu-mem, or MiB of a slot; 1 for a whole card. Without a UUID
 * its index identifies the card. */
struct pod_allocation_container {
    struct span name;
    enum container_role role;
    uint32_t index; /* in the allocation annotation */
    enum ids_resource resource;
    int64_t amount;          /* the limit, and so the number of ids */
    int64_t compute_percent; /* limit of gpu-core.percentage, of all its cards; 0: none */
    bool own_devices;        /* its env sets NVIDIA_VISIBLE_DEVICES */
    bool own_preload;        /* its env sets LD_PRELOAD */
    bool privileged;
    int64_t started_s; /* since when it runs, by the API server; 0: not, or not known */
    /* What it may have of each card, up to `amount` ids in all; none: no promise. */
    struct promise_share *shares;
    size_t n_shares;
};

/* MiB of each slot of the container; `otherwise`: it has no slots, or no valid promise. */
static inline int64_t pod_allocation_slot_mib(const struct pod_allocation_container *c,
                                              int64_t otherwise)
{
    return ids_are_slots(c->resource) && c->n_shares ? c->shares[0].units : otherwise;
}

/* How many ids of the card the share is. */
static inline int64_t pod_allocation_ids(const struct pod_allocation_container *c,
                                         const struct promise_share *share)
{
    return ids_are_slots(c->resource) ? 1 : share->units;
}

/* MiB of the memory of the card that the share is; not of a whole card. */
static inline int64_t pod_allocation_mib(const struct pod_allocation_container *c,
                                         const struct promise_share *share,
                                         int64_t unit_mib)
{
    return share->units * (ids_are_slots(c->resource) ? 1 : unit_mib);
}

enum pod_allocation_promise {
    POD_ALLOCATION_PROMISED,
    POD_ALLOCATION_UNPROMISED, /* no annotation names a card */
    /* The limits are invalid, or the annotations contradict them or promise more than they
     * request; see why_not. */
    POD_ALLOCATION_INVALID,
};

struct pod_allocation {
    struct arena arena;
    struct span uid, ns, name;
    const char *full_name; /* "namespace/name" */
    struct span isolation; /* the annotation gpushare/isolation; empty: none */
    bool terminal;         /* none of its containers will run again */
    bool started;          /* its phase is not Pending any more */
    bool mirror;           /* the mirror pod of a static pod */
    bool assigned;         /* the ASSIGNED annotation is "true" */
    bool lacks_uuids;      /* the promise names no UUID, and would count with them */
    bool is_chosen; /* pod_allocation_assign chose the cards; no annotation has them */
    enum pod_allocation_promise promise;
    struct span why_not;
    struct request request;
    struct promise_share *cards; /* promised to the whole pod, also if the
                                            promise is INVALID; none for a pod
                                            that requests nothing */
    size_t n_cards;
    struct pod_allocation_container *containers;
    size_t n_containers;
};

/* New. `unit_mib` is the unit of gpu-mem. `dialect`: nvidia.com/gpu is HAMi's on this node, with
 * these values; NULL: it is not. */
struct pod_allocation *pod_allocation_new(const struct pod *pod, int64_t unit_mib,
                                          const struct dialect *dialect);
void pod_allocation_free(struct pod_allocation *alloc); /* NULL is accepted */
/* Assigns the pod these cards as if they were promised; they are copied. For memory each
 * card holds an equal part. */
void pod_allocation_assign(struct pod_allocation *alloc,
                           const struct promise_share *cards, size_t n);
/* The card of a share; NULL: it is not on this node. A card is identified by its UUID, and by
 * its index only if it has none. */
const struct plugin_card *pod_allocation_card(const struct cards *cards,
                                              const struct promise_share *share);
