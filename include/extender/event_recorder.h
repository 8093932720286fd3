/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/counters.h"
#include "kube/client.h"
#include "kube/events.h"

/*
 * The thread that writes events. Who has something to tell hands it over and goes on;
 * how much of it is written: kube/events.h.
 */

struct event_recorder;

struct event_recorder_settings {
    /* Posts, and waits for the end. -1: it was not written. */
    int (*post)(void *ctx, const struct kube_request *request, struct err *err);
    void *ctx;
    const char *instance;      /* a name of this process; copied */
    struct counters *counters; /* borrowed; NULL: it counts nowhere */
    uint64_t seed;
};

/* New; the thread runs at once. */
struct event_recorder *
event_recorder_start(const struct event_recorder_settings *settings);
void event_recorder_stop(
    struct event_recorder *r); /* joins the thread; NULL is accepted */
void event_recorder_free(struct event_recorder *r); /* NULL is accepted */

/* From any thread; never wait for anything but each other. NULL: nobody wants any. */
bool event_recorder_wants(struct event_recorder *r, struct span uid, const char *reason);
/* Copied. False: it is not written, because it was told lately or because there is too
 * much; what cannot be written at all is counted as failed, and true. Of a NODE nothing
 * is compared with what was told before. */
bool event_recorder_add(struct event_recorder *r, const struct event *event);

/* What became of them, as text for Prometheus. */
void event_recorder_write(struct event_recorder *r, struct buf *out);
