/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * Requests for one size of cluster, put together before anything is measured.
 */

enum {
    BODIES_ORDERS = 8,  /* the names of the nodes come in as many different orders */
    BODIES_FULL = 1000, /* Nodes in a body with whole objects, at most */
};

struct bodies {
    size_t n_nodes;
    struct span filter[BODIES_ORDERS];
    struct span prioritize[BODIES_ORDERS]; /* with the nodes that passed filter */
    struct span full[2];                   /* filter with whole Nodes */
    size_t n_full;
    struct span *bind;    /* for the extender */
    struct span *binding; /* the API call that it makes of it, for the API server */
    size_t n_pods;        /* of each of the two */
};

/* Makes 2 * n_pods waiting pods in the cluster of kube-sim, and the requests. `sim_port`,
 * `extender_port`: filter is asked once, for prioritize and bind. */
void bodies_make(struct bodies *b, unsigned sim_port, unsigned extender_port,
                 size_t n_nodes, size_t n_pods);
void bodies_fini(struct bodies *b);
