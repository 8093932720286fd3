/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Events (events.k8s.io/v1): what people see in `kubectl describe`. Pure: it decides
 * which are written and makes the bytes; whoever has a connection posts them.
 *
 * Of one object and reason, no more than one event is written in EVENTS_AGAIN_MS. What
 * comes meanwhile is counted and told by the next one, as its series. (It is a new event,
 * not a patch of the old one, so that the right to create is all that is needed.) Over
 * all, EVENTS_PER_S are written for long, and EVENTS_BURST at once; what is more is
 * dropped, and so is what would wait behind EVENTS_QUEUE others. What is remembered is
 * bounded: with very many objects, the one that was told of longest ago is forgotten.
 *
 * Who knows by himself what was told (of a node's cards, say) takes places by
 * events_admit_unique, and tries again later when there is none.
 */

enum {
    EVENTS_AGAIN_MS = 10 * 60 * 1000,
    EVENTS_PER_S = 20,
    EVENTS_BURST = 200,
    EVENTS_QUEUE = 512,
    EVENTS_NOTE_MAX = 1024, /* bytes that the API server takes */
};

enum event_kind { EVENT_POD, EVENT_NODE };

struct event {
    enum event_kind kind;
    struct span ns; /* of a POD */
    struct span name;
    struct span uid;             /* of a NODE: its name, as the kubelet does it */
    bool warning;                /* else it is Normal */
    const char *reason, *action; /* CamelCase */
    struct span note;            /* cut at EVENTS_NOTE_MAX */
};

/* Who writes. */
struct event_source {
    const char *controller, *instance; /* "gpushare-extender", a name of this process */
};

/* Appends the path to POST to, and the body. `count`: how often it happened; more than 1
 * makes it a series. `wall_ns` also makes the name of the event. False, and nothing is
 * appended: a name or namespace is none that the API server would take. */
bool event_write(const struct event_source *source, const struct event *event,
                 int64_t wall_ns, uint32_t count, struct buf *path, struct buf *body);

struct events;

struct events_stats {
    uint64_t repeated, dropped; /* not written because of the limits */
    uint32_t queued;            /* now */
};

struct events *events_new(uint64_t seed); /* new; `seed` keys its table */
void events_free(struct events *e);

/* Is it time to write an event of that object and reason? False: it was told lately, and
 * this one is counted. */
bool events_should_write(struct events *e, int64_t now_ms, struct span uid,
                         const char *reason);
/* Takes a place in the queue for the event. Returns how often it has happened since the
 * one that was written before; 0: it is not to be written. */
uint32_t events_admit(struct events *e, int64_t now_ms, struct span uid,
                      const char *reason);
/* Takes a place for what is news for certain; false: there is none now. A quarter of
 * EVENTS_BURST stays for the others. */
bool events_admit_unique(struct events *e, int64_t now_ms);
/* It was written, or could not be. */
void events_written(struct events *e);
struct events_stats events_stats(const struct events *e);
