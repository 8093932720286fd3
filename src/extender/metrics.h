/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/prom.h"
#include "extender/core_driver.h"
#include "kube/event_recorder.h"
#include "placement/reason.h"

/*
 * /metrics: the state of the ledger and the counters, in Prometheus' text format. What
 * each metric means to an operator: docs/metrics.md.
 *
 * Nodes are read one by one (view_source_each_node) and summed outside the lock.
 */

/* -- the counters --
 * Any thread may count at any time: an increment takes no lock and allocates nothing. Every
 * function but counters_new accepts NULL and then does nothing. */

enum counters_verb {
    COUNTERS_FILTER,
    COUNTERS_PRIORITIZE,
    COUNTERS_PREEMPT,
    COUNTERS_BIND,
    COUNTERS_VERBS
};

/* Requests to the API server. */
enum counters_api_call {
    COUNTERS_API_LIST,
    COUNTERS_API_WATCH,
    COUNTERS_API_BIND,
    COUNTERS_API_GET_POD,
    COUNTERS_API_LEASE_GET,
    COUNTERS_API_LEASE_WRITE,
    COUNTERS_API_WAKEUP, /* the annotation that makes kube-scheduler retry pods */
    COUNTERS_API_NOMINATE,
    COUNTERS_API_EVICT,
    COUNTERS_API_EVENT,
    COUNTERS_API_SECRET, /* reads and writes of the Secrets with certificates */
    COUNTERS_API_CALLS
};

struct counters;

struct counters *counters_new(void); /* new */
void counters_free(struct counters *c);

/* A verb was answered with `status`, `ns` nanoseconds after its body was complete. */
void counters_verb(struct counters *c, enum counters_verb verb, unsigned status,
                   int64_t ns);
/* This client calls filter; its name becomes a label, of the first few clients. Takes a lock. */
void counters_filter_call(struct counters *c, const char *caller);
/* A filter rejected that many nodes for each reason; `fits`: some node fits. */
void counters_filter(struct counters *c, const uint32_t rejected[REASON_CLASSES],
                     bool fits);
/* A filter named a node for a single pod, but its cards could not be reserved: this is not
 * the leader, too many are reserved, or others were faster each time. */
void counters_unreserved(struct counters *c, enum core_reserve_outcome why);
/* A bind ended in this process; ERR_NONE: bound. */
void counters_bind(struct counters *c, enum err_code code);
/* A bind succeeded at the leader, to which it was forwarded. */
void counters_bind_forwarded(struct counters *c);
/* A request to the API server ended. */
void counters_api_call(struct counters *c, enum counters_api_call call,
                       enum err_code code);

/* Appends all counters in Prometheus' text format. */
void counters_write(struct counters *c, struct buf *out);

/* -- the text -- */

/* How much is written. Sums over the cluster always are. At 5,000 nodes of 8 cards,
 * `node` adds 25,000 lines and `card` another 290,000, at the leader only. */
enum metrics_detail { METRICS_CLUSTER, METRICS_NODE, METRICS_CARD };

struct metrics_source {
    struct core_driver *driver;
    struct counters *counters;       /* or NULL */
    struct event_recorder *recorder; /* NULL: no events */
    enum metrics_detail detail;
};

/* What this process did and its state: small, and different for each call. */
void metrics_write(const struct metrics_source *source, struct buf *out);
/* The nodes and cards of the ledger. */
void metrics_write_ledger(const struct metrics_source *source, struct buf *out);
