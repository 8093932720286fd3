/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/show.h"

/*
 * What workloads used at most, from the workloadList of all Scvs, and what they should
 * request. Pure.
 *
 * Rows of several nodes for the same container of a workload become one: with the highest
 * promise, use and age. All amounts are of one card. The suggestion is the highest use and
 * RIGHTSIZE_HEADROOM percent, rounded up to units: a container that asks for more than its
 * promise may fail, so 95 of 100 hours are not enough.
 */

enum {
    RIGHTSIZE_HEADROOM = 15,
    RIGHTSIZE_MAX = 1000000, /* rows; further ones are dropped */
};

struct rightsize;

struct rightsize *rightsize_new(void);    /* new */
void rightsize_free(struct rightsize *r); /* NULL is accepted */

/* Adds the workloads of a list of Scvs; of one namespace, unless `ns` is empty. Items that
 * are malformed are left out. */
void rightsize_add(struct rightsize *r, const json_t *scvs, struct span ns);

/* Appends the rows by namespace, kind, name and container. */
void rightsize_write(struct rightsize *r, enum show_format format, int64_t unit_mib,
                     bool colors, struct buf *out);
