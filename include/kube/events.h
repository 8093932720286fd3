/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Events (events.k8s.io/v1), which `kubectl describe` shows. Pure: it decides which
 * events are written and encodes them; the caller posts them.
 *
 * For one object and reason, at most one event is written per EVENTS_AGAIN_MS.
 * Repetitions are counted, and the next event reports their number as its series.
 * (client-go patches the first event instead; a new event needs only the permission to
 * create events.) A token bucket limits all events to EVENTS_PER_S with bursts of
 * EVENTS_BURST, and at most EVENTS_QUEUE events are queued; events beyond these limits
 * are dropped. The table of recent events has a fixed size: it evicts the object whose
 * event is the oldest.
 *
 * A caller that itself knows which events it has written, for example of a node's cards,
 * uses events_admit_unique, and retries later if that returns false.
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
    const char *reason, *action; /* CamelCase */
    struct span note;            /* truncated to EVENTS_NOTE_MAX */
};

/* reportingController and reportingInstance. */
struct event_source {
    const char *controller, *instance; /* "gpushare-extender", the name of its pod */
};

/* Appends the path and the body of the POST request. `count` is the number of
 * occurrences; more than 1 adds a series. `wall_ns` is the event's time and part of its
 * name. False, and nothing is appended, if a name or namespace is invalid. */
bool event_write(const struct event_source *source, const struct event *event,
                 int64_t wall_ns, uint32_t count, struct buf *path, struct buf *body);

struct events;

struct events_stats {
    /* Events that were not written: as repetitions, and because a limit was reached. */
    uint64_t repeated, dropped;
    uint32_t queued; /* now */
};

struct events *events_new(uint64_t seed); /* new; `seed` keys its hash table */
void events_free(struct events *e);

/* Whether an event for this object and reason is due. False: one was written within
 * EVENTS_AGAIN_MS, and this occurrence is counted. */
bool events_should_write(struct events *e, int64_t now_ms, struct span uid,
                         const char *reason);
/* Admits an event to the queue. Returns the number of its occurrences since the event
 * that was written before, for event_write; 0: do not write the event. */
uint32_t events_admit(struct events *e, int64_t now_ms, struct span uid,
                      const char *reason);
/* Admits an event that the caller knows not to be a repetition; false: retry later.
 * Leaves a quarter of EVENTS_BURST to events_admit. */
bool events_admit_unique(struct events *e, int64_t now_ms);
/* Removes an admitted event from the queue: it was written, or writing it has failed. */
void events_written(struct events *e);
struct events_stats events_stats(const struct events *e);
