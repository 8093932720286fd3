/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/core_driver.h"
#include "extender/counters.h"
#include "kube/event_recorder.h"

/*
 * /metrics: the state of the ledger and the counters, in Prometheus' text format. What
 * each metric means to an operator: docs/metrics.md.
 *
 * Nodes are read one by one (core_driver_each_node) and summed outside the lock.
 */

/* How much is written. Sums over the cluster always are. At 5,000 nodes of 8 cards,
 * `node` adds 35,000 lines and `card` another 240,000. */
enum metrics_detail { METRICS_CLUSTER, METRICS_NODE, METRICS_CARD };

struct metrics_source {
    struct core_driver *driver;
    const struct counters *counters; /* or NULL */
    struct event_recorder *recorder; /* NULL: no events */
    enum metrics_detail detail;
};

/* What this process did and its state: small, and different for each call. */
void metrics_write(const struct metrics_source *source, struct buf *out);
/* The nodes and cards of the ledger. */
void metrics_write_ledger(const struct metrics_source *source, struct buf *out);
/* Writes a text that changes whenever the result of metrics_write_ledger does. */
void metrics_ledger_state(const struct metrics_source *source, struct buf *out);
