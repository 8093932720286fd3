/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/recorder.h"
#include "extender/store.h"
#include "extender/tally.h"

/*
 * /metrics: what the extender knows and has done, as text for Prometheus. What each
 * figure means to an operator: docs/metrics.md.
 *
 * Nodes are looked at one by one (extender/walk.h) and put together outside the lock.
 */

/* How much is told. Sums over the cluster always are; at 5,000 nodes of 8 cards, `node`
 * is 35,000 lines and `card` 240,000 more. */
enum metrics_detail { METRICS_CLUSTER, METRICS_NODE, METRICS_CARD };

/* The detail of that name. -1: there is none; err lists them. */
int metrics_detail_read(struct span text, enum metrics_detail *detail, struct err *err);

struct metrics_source {
    struct store *store;
    const struct tally *tally;
    struct recorder *recorder; /* NULL: no events */
    enum metrics_detail detail;
};

void metrics_write(const struct metrics_source *source, struct buf *out);
