/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"

/*
 * Events (events.k8s.io/v1), which `kubectl describe` shows, and the thread that writes them.
 * Other threads queue an event and go on.
 *
 * For one object and reason, at most one event is written per EVENTS_AGAIN_MS. Repetitions
 * are counted, and the next event reports their number as its series. (client-go patches the
 * first event instead; a new event needs only the permission to create events.) A token
 * bucket limits all events to EVENTS_PER_S with bursts of EVENTS_BURST, and at most
 * EVENTS_QUEUE events are queued; events beyond these limits are dropped. The table of recent
 * events has a fixed size: it evicts the object whose event is the oldest.
 */

enum {
    EVENTS_AGAIN_MS = 10 * 60 * 1000,
    EVENTS_PER_S = 20,
    EVENTS_BURST = 200,
    EVENTS_QUEUE = 512,
    EVENTS_NOTE_MAX = 1024, /* bytes; the API server's limit */
};

enum event_kind { EVENT_POD, EVENT_NODE };

struct event {
    enum event_kind kind;
    struct span ns; /* of a POD */
    struct span name;
    struct span uid;             /* of a NODE: its name, as in the kubelet's events */
    bool warning;                /* type Warning; else Normal */
    bool unique;                 /* the caller knows that it is no repetition */
    const char *reason, *action; /* CamelCase */
    struct span note;            /* truncated to EVENTS_NOTE_MAX */
};

struct event_recorder;

struct event_recorder_settings {
    /* Posts an event and waits for the answer. -1: not written. For example kube_send. */
    int (*post)(void *ctx, const struct kube_request *request, struct err *err);
    void *ctx;
    const char *controller;  /* reportingController; static */
    const char *instance;    /* reportingInstance, the name of this process; copied */
    int64_t (*now_ms)(void); /* NULL: clock_mono_ms */
    uint64_t seed;           /* keys its hash table */
};

/* New; the thread runs at once. */
struct event_recorder *
event_recorder_start(const struct event_recorder_settings *settings);
/* Joins the thread, until `until_ms` (clock_mono_ms). False: a call is still in flight, and
 * nothing may be freed. NULL is accepted. */
bool event_recorder_stop(struct event_recorder *r, int64_t until_ms);
void event_recorder_free(struct event_recorder *r); /* NULL is accepted */

/* Both functions: from any thread; they wait for no I/O. With NULL they return false. */

/* Whether an event of that object and reason would be written now. False: one was written
 * within EVENTS_AGAIN_MS, and this occurrence is counted. */
bool event_recorder_wants(struct event_recorder *r, struct span uid, const char *reason);
/* Queues a copy. False: dropped as a repetition or by a limit. True, and counted as failed,
 * for an event that cannot be encoded. Unique events leave a quarter of EVENTS_BURST to the
 * others; a refused one is not counted, and the caller retries it or reports the loss. */
bool event_recorder_add(struct event_recorder *r, const struct event *event);

struct event_recorder_stats {
    uint64_t written, failed;
    uint64_t repeated, dropped; /* not written: as repetitions, and because of a limit */
    uint32_t queued;            /* now */
};
struct event_recorder_stats event_recorder_stats(struct event_recorder *r);
/* Appends them as gpushare_events_total and gpushare_events_queued in Prometheus' text
 * format. */
void event_recorder_write(struct event_recorder *r, struct buf *out);
