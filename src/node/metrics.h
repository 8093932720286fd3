/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "node/publisher.h"

/*
 * The metrics of scv-agent: its counters, and the cards that the publisher publishes.
 * docs/metrics.md describes each for operators.
 */

enum { METRICS_CODES = ERR_INTERNAL + 1 };

/* Incremented by any thread. {0} is valid. */
struct metrics {
    _Atomic int64_t samples, failed_samples;
    _Atomic int64_t calls[METRICS_CODES]; /* of the API server */
};

/* Appends the text of /metrics. */
void metrics_write_agent(const struct metrics *m, const struct publisher *p,
                         struct step_time now, struct buf *out);
