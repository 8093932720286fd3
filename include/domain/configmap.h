/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"

/*
 * A ConfigMap `unhealthy-gpu-<node>` of the Go extender, by which an operator takes cards
 * of a node out: key "gpus", a comma list of card indexes.
 */

struct unhealthy_cards {
    struct object_meta meta;
    struct span
        node;       /* the part of the name behind the prefix; empty: another ConfigMap */
    int32_t *cards; /* in the arena */
    size_t n;
    bool damaged; /* the list is not one: nobody knows which cards are meant */
};

/* Reads a ConfigMap. */
void unhealthy_cards_read(struct jread *j, struct arena *a, struct unhealthy_cards *u);
