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

enum tally_verb {
    TALLY_FILTER,
    TALLY_PRIORITIZE,
    TALLY_PREEMPT,
    TALLY_BIND,
    TALLY_VERBS
};

/* What the API server is asked for. */
enum tally_call {
    TALLY_LIST,
    TALLY_WATCH,
    TALLY_CALL_BIND,
    TALLY_GET_POD,
    TALLY_LEASE_GET,
    TALLY_LEASE_WRITE,
    TALLY_MARK_ROOM,
    TALLY_EVENT,
    TALLY_CALLS
};

struct tally;

struct tally *tally_new(void); /* new */
void tally_free(struct tally *t);

/* A verb was answered with an HTTP status, so long after its body was there. */
void tally_verb(struct tally *t, enum tally_verb verb, unsigned status, int64_t ns);
/* A filter: so many nodes were refused for each reason; `room`: some node was not. */
void tally_filter(struct tally *t, const uint32_t refused[REASON_CLASSES], bool room);
/* A bind came to its end here; ERR_NONE: bound. */
void tally_bind(struct tally *t, enum err_code code);
/* ... or at the holder of the lease. */
void tally_handed_on(struct tally *t);
/* A call of the API server has ended. */
void tally_call(struct tally *t, enum tally_call call, enum err_code code);

/* Appends all of it, as text for Prometheus. */
void tally_write(const struct tally *t, struct buf *out);
