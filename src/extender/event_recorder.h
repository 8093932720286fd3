/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/counters.h"
#include "kube/client.h"
#include "kube/events.h"

/*
 * The thread that writes Events. Other threads queue an event and go on. Deduplication
 * and rate limits: kube/events.h.
 */

struct event_recorder;

struct event_recorder_settings {
    /* Posts an event and waits for the answer. -1: not written. */
    int (*post)(void *ctx, const struct kube_request *request, struct err *err);
    void *ctx;
    const char *instance;      /* name of this process; copied */
    struct counters *counters; /* borrowed; NULL: nothing is counted */
    uint64_t seed;
};

/* New; the thread runs at once. */
struct event_recorder *
event_recorder_start(const struct event_recorder_settings *settings);
void event_recorder_stop(struct event_recorder *r); /* joins; NULL is accepted */
void event_recorder_free(struct event_recorder *r); /* NULL is accepted */

/* Both functions: from any thread; they wait for no I/O. With NULL they return false. */

/* Whether an event of that object and reason would be written now. */
bool event_recorder_wants(struct event_recorder *r, struct span uid, const char *reason);
/* Queues a copy. False: dropped as a duplicate or by the rate limit. True, and counted as
 * failed, for an event that cannot be encoded. Events of Nodes are not deduplicated. */
bool event_recorder_add(struct event_recorder *r, const struct event *event);

/* Appends the counters of events in Prometheus' text format. */
void event_recorder_write(struct event_recorder *r, struct buf *out);
