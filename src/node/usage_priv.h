/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/usage.h"

/* What usage_build works with. */

/* One process on one card. */
struct usage_row {
    size_t card;
    const struct gpu_process *process;
    const struct usage_place *place; /* NULL: it has none */
    const struct usage_name *name;   /* NULL: its container has no known name */
};

struct usage_builder {
    const struct usage_input *in;
    struct usage *u;
    struct usage_card *cards;
    const struct usage_name *names; /* sorted by container ID */
    struct usage_row *rows;         /* of processes in containers */
    size_t n_rows;
    bool unnamed[GPU_MAX_CARDS]; /* a container on the card has no known name */
    struct usage_container *containers;
    size_t n_containers, cap_containers;
    struct usage_process *outside;
    size_t n_outside;
};

/* New; the caller sets it. */
struct usage_container *usage_add_container(struct usage_builder *b);
/* Sets what is known of the promise of a container that uses the card: nothing, or that it
 * is an init container. */
void usage_promises_begin(const struct usage_builder *b, const struct usage_row *row,
                          struct usage_container *c);
/* Adds the promises to the containers, adds those without a process, and the init
 * containers. */
void usage_promises_take(struct usage_builder *b);
