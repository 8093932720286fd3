/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/rng.h"
#include "kube-sim/generate.h"
#include "kube-sim/jsonx_priv.h"

/* The objects of a generated cluster. */

/* The node that is being generated. */
struct gen_node {
    const struct generate *g;
    int64_t index;
    char name[32], uid[40];
    const char *now; /* RFC 3339 */
    int64_t now_ns;
    struct rng rng;    /* of this node alone */
    char (*uuids)[48]; /* of its cards */
};

/* A pod's cards on its node. */
struct gen_pod {
    int64_t index;       /* on the node */
    int64_t card, cards; /* first card, and how many */
    int64_t units;       /* on each of them */
};

json_t *sim_gen_node_object(const struct gen_node *n);
json_t *sim_gen_scv_object(const struct gen_node *n);
json_t *sim_gen_lease_object(const struct gen_node *n);
json_t *sim_gen_pod_object(const struct gen_node *n, const struct gen_pod *p);

/* An array of managedFields that pads `object` to about `wanted` bytes. New; NULL: the
 * object is large enough. */
json_t *sim_gen_padding(int64_t wanted, const json_t *object, const char *now);
