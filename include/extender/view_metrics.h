/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/counters.h"
#include "extender/event_recorder.h"
#include "extender/store.h"

/*
 * /metrics: what the extender knows and has done, as text for Prometheus. What each
 * figure means to an operator: docs/metrics.md.
 *
 * Nodes are looked at one by one (extender/walk.h) and put together outside the lock.
 */

/* How much is told. Sums over the cluster always are; at 5,000 nodes of 8 cards, `node`
 * is 35,000 lines and `card` 240,000 more. */
enum view_metrics_detail { VIEW_METRICS_CLUSTER, VIEW_METRICS_NODE, VIEW_METRICS_CARD };

/* The detail of that name. -1: there is none; err lists them. */
int view_metrics_detail_parse(struct span text, enum view_metrics_detail *detail,
                              struct err *err);

struct view_metrics_source {
    struct store *store;
    const struct counters *counters;
    struct event_recorder *recorder; /* NULL: no events */
    enum view_metrics_detail detail;
};

void view_metrics_write(const struct view_metrics_source *source, struct buf *out);
