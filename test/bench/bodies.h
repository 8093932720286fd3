/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * The requests of one cluster size, built before the measurement.
 */

enum {
    BODIES_ORDERS = 8,  /* number of different orders of the node names */
    BODIES_FULL = 1000, /* maximum Nodes in a body with whole objects */
};

struct bodies {
    size_t n_nodes;
    struct span filter[BODIES_ORDERS];
    struct span prioritize[BODIES_ORDERS]; /* with the nodes that passed filter */
    struct span full[2];                   /* filter with whole Nodes */
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
