/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"

/*
 * A ConfigMap `unhealthy-gpu-<node>` of the Go extender, with which an operator makes cards
 * of a node unavailable: key "gpus", a comma-separated list of card indexes.
 */

struct unhealthy_cards {
    struct object_meta meta;
    struct span node; /* the name without the prefix; empty: another ConfigMap */
    int32_t *cards;   /* in the arena */
    size_t n;
    bool damaged; /* the list cannot be parsed */
};

/* Reads a ConfigMap. */
void unhealthy_cards_read(struct jread *j, struct arena *a, struct unhealthy_cards *u);
