/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ids.h"
#include "domain/pod.h"
#include "domain/request.h"

/*
 * What a pod of this node is to get: its containers in the order in which the kubelet
 * admits them, each with the cards that its annotations promise it.
 *
 * The kubelet asks for each container and resource in turn: init containers first
 * (sidecars among them), in the order of the spec, then the others.
 */

struct pod_allocation_share {
    struct span uuid; /* of the card; empty: it goes by its index */
    int32_t index;
    int64_t units; /* of gpu-mem; 1 for a whole card */
};

struct pod_allocation_container {
    struct span name;
    enum container_role role;
    enum ids_resource resource;
    int64_t amount; /* how many ids the kubelet will ask for */
    bool own_devices;
    struct pod_allocation_share *shares; /* none: nothing is promised */
    size_t n_shares;
};

/* How a pod comes by its cards. */
enum pod_allocation_promise {
    POD_ALLOCATION_PROMISED,
    POD_ALLOCATION_UNPROMISED, /* no annotation names a card */
    POD_ALLOCATION_DAMAGED,    /* they do not go with what it asks for; see why_not */
    POD_ALLOCATION_INVALID,    /* what it asks for cannot be meant; see why_not */
};

struct pod_allocation {
    struct arena arena;
    struct span uid, ns, name;
    bool terminal; /* none of its containers will run again */
    bool started;  /* it has left Pending */
    bool mirror;   /* stands for a static pod */
    bool assigned; /* its annotation says so */
    enum pod_allocation_promise promise;
    struct span why_not;
    struct request request;
    struct pod_allocation_share *cards; /* of the whole pod, as promised */
    size_t n_cards;
    struct pod_allocation_container
        *containers; /* those that ask for something of ours */
    size_t n_containers;
};

/* New. `unit_mib` is the unit of gpu-mem. */
struct pod_allocation *pod_allocation_new(const struct pod *pod, int64_t unit_mib);
void pod_allocation_free(struct pod_allocation *alloc); /* NULL is accepted */
/* Gives the pod these cards, as if they had been promised; they are copied. For MEMORY
 * each holds an even part. */
void pod_allocation_assign(struct pod_allocation *alloc,
                           const struct pod_allocation_share *cards, size_t n);
