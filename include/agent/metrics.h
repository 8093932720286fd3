/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "agent/publisher.h"

/*
 * /metrics of scv-agent: what it counts, and what the publisher knows of the cards. What
 * each figure means to an operator: docs/metrics.md.
 */

enum { METRICS_CALLS = PUBLISHER_PATCH_LEASE + 1, METRICS_CODES = ERR_INTERNAL + 1 };

/* Any thread may count. {0} is valid. */
struct metrics {
    _Atomic uint64_t samples, failed_samples;
    _Atomic uint64_t calls[METRICS_CALLS][METRICS_CODES]; /* by publisher_output_type */
};

/* Counts an input, as it goes to the publisher. */
void metrics_input(struct metrics *f, const struct publisher_input *in);
/* Counts the end of a call. */
void metrics_call(struct metrics *f, enum publisher_output_type call, enum err_code code);

/* Appends the text. */
void metrics_write(const struct metrics *f, const struct publisher *m,
                   struct publisher_time now, struct buf *out);
