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

struct plan_share {
    struct span uuid; /* of the card; empty: it goes by its index */
    int32_t index;
    int64_t units; /* of gpu-mem; 1 for a whole card */
};

struct plan_container {
    struct span name;
    enum container_role role;
    enum ids_resource resource;
    int64_t amount; /* how many ids the kubelet will ask for */
    bool own_devices;
    struct plan_share *shares; /* none: nothing is promised */
    size_t n_shares;
};

/* How a pod comes by its cards. */
enum plan_promise {
    PLAN_PROMISED,
    PLAN_NONE,    /* no annotation names a card */
    PLAN_DAMAGED, /* they do not go with what it asks for; see why_not */
    PLAN_UNMEANT, /* what it asks for cannot be meant; see why_not */
};

struct plan {
    struct arena arena;
    struct span uid, ns, name;
    bool over;     /* none of its containers will run again */
    bool started;  /* it has left Pending */
    bool mirror;   /* stands for a static pod */
    bool assigned; /* its annotation says so */
    enum plan_promise promise;
    struct span why_not;
    struct request request;
    struct plan_share *cards; /* of the whole pod, as promised */
    size_t n_cards;
    struct plan_container *containers; /* those that ask for something of ours */
    size_t n_containers;
};

/* New. `unit_mib` is the unit of gpu-mem. */
struct plan *plan_new(const struct pod *pod, int64_t unit_mib);
void plan_free(struct plan *plan); /* NULL is accepted */
/* Gives the pod these cards, as if they had been promised; they are copied. For MEMORY
 * each holds an even part. */
void plan_give(struct plan *plan, const struct plan_share *cards, size_t n);
