/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * The requests of one cluster size, built before the measurement.
 */

enum {
    BODIES_ORDERS = 8,  /* number of different orders of the node names, of each kind */
    BODIES_FULL = 1000, /* maximum Nodes in a body with whole objects */
};

/* kube-scheduler goes through one list of all nodes, each time from where it stopped the
 * last time (nextStartNodeIndex). Sixteen workers take chunks of sqrt(n) nodes from it, and
 * the names are in the order in which the workers are done with them
 * (findNodesThatPassFilters in pkg/scheduler/schedule_one.go, framework/parallelize). So the
 * names of up to sixteen chunks alternate. */
enum bodies_order {
    BODIES_SCHEDULER, /* the workers are equally fast, and interrupted now and then */
    BODIES_SHUFFLED,  /* worse than any scheduler */
    BODIES_KINDS
};

/* The order of the names of one call: all numbers below n. */
struct rng;
void bodies_order(struct rng *rng, enum bodies_order kind, size_t n, size_t *order);

struct bodies {
    size_t n_nodes;
    struct span filter[BODIES_KINDS][BODIES_ORDERS];
    /* With the nodes that passed filter. */
    struct span prioritize[BODIES_KINDS][BODIES_ORDERS];
    struct span full[2]; /* filter with whole Nodes */
    size_t n_full;
    struct span *bind;    /* to the extender */
    struct span *binding; /* the resulting call to the API server */
    size_t n_pods;        /* of `bind` and of `binding` */
};

/* Creates 2 * n_pods pending pods in kube-sim, and builds the requests. Calls filter once,
 * for the nodes of prioritize and bind. */
void bodies_make(struct bodies *b, unsigned sim_port, unsigned extender_port,
                 size_t n_nodes, size_t n_pods);
void bodies_fini(struct bodies *b);
