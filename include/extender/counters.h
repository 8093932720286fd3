/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/prom.h"
#include "placement/placement.h"

/*
 * What the extender counts as it works, for extender/metrics.h. Any thread may count at
 * any time: nothing is locked or allocated, and a count costs an addition. Each function
 * accepts NULL and then counts nothing.
 */

enum counters_verb {
    COUNTERS_FILTER,
    COUNTERS_PRIORITIZE,
    COUNTERS_PREEMPT,
    COUNTERS_BIND,
    COUNTERS_VERBS
};

/* What the API server is asked for. */
enum counters_api_call {
    COUNTERS_API_LIST,
    COUNTERS_API_WATCH,
    COUNTERS_API_BIND,
    COUNTERS_API_GET_POD,
    COUNTERS_API_LEASE_GET,
    COUNTERS_API_LEASE_WRITE,
    COUNTERS_API_WAKEUP,
    COUNTERS_API_EVENT,
    COUNTERS_API_CALLS
};

struct counters;

struct counters *counters_new(void); /* new */
void counters_free(struct counters *t);

/* A verb was answered with an HTTP status, so long after its body was there. */
void counters_verb(struct counters *t, enum counters_verb verb, unsigned status,
                   int64_t ns);
/* A filter: so many nodes were refused for each reason; `room`: some node was not. */
void counters_filter(struct counters *t, const uint32_t refused[REASON_CLASSES],
                     bool room);
/* A bind came to its end here; ERR_NONE: bound. */
void counters_bind(struct counters *t, enum err_code code);
/* ... or at the holder of the lease. */
void counters_bind_forwarded(struct counters *t);
/* A call of the API server has ended. */
void counters_api_call(struct counters *t, enum counters_api_call call,
                       enum err_code code);

/* Appends all of it, as text for Prometheus. */
void counters_write(const struct counters *t, struct buf *out);
