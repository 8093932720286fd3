/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/step.h"

/*
 * When to list and when to watch the objects of one kind, as client-go's Reflector: list,
 * watch from the list's resourceVersion, watch again from the last version when the server
 * ends the watch, and list again after a failure. Every list is consistent, that is, requested
 * without a resourceVersion.
 *
 * Pure: the owner makes the requests, numbers them (runs), passes on what happens to them, and
 * owns the objects. All times are clock_mono_ms.
 *
 *     reflector_start
 *     reflector_tick -> a list or a watch to request
 *         reflector_delivered ... reflector_ended, for inputs of reflector_is_current
 *     reflector_fini
 *
 * Rules, the same for every kind:
 *
 * - A list is the truth. One whose version is older than what was seen before shows that the API
 *   server was restored from a backup: REFLECTOR_RESTORED.
 * - A watch whose version goes back shows nothing: a member of etcd that lags (fixed in 3.6.2)
 *   sends its own progress to a kube-apiserver that has turned to it. A list decides.
 * - A watch that broke is not resumed: a restored API server is silent until it has passed the
 *   watch's version. The list after it comes soon, at a random time within `spread_ms`.
 * - 410 (an expired version, or an expired continue token of a list) causes a list from its first
 *   page at once. The next 410 in a row backs off like any failure.
 * - Failures in a row back off. Neither a list nor an opened watch resets the back-off of a
 *   watch that fails: only a watch that lasts does.
 * - The time that a server asks for with Retry-After passes first, whatever the owner needs.
 */

enum {
    /* timeoutSeconds of a watch; up to half as much again is random. The end of a watch proves
     * that it works, at the cost of one request: an API server need not send bookmarks. */
    REFLECTOR_WATCH_S = 50,
    /* ... of pods on each of thousands of nodes. client-go's are 5 to 10 minutes long. */
    REFLECTOR_POD_WATCH_S = 240,
    /* spread_ms of what every node watches: 5,000 nodes list 500 times a second. The kubelet's
     * question about a pod does not wait for it: see reflector_relist. */
    REFLECTOR_SPREAD_MS = 10 * 1000,
};

/* What differs between kinds. */
struct reflector_kind {
    int64_t watch_s; /* timeoutSeconds, as above */
    int64_t
        spread_ms; /* of the lists after an API server broke the watches of all nodes; 0: one
                          back-off */
    bool optional; /* the server need not serve the kind: 404 is an empty list */
};

enum reflector_state {
    REFLECTOR_LIST_DUE,
    REFLECTOR_LISTING,
    REFLECTOR_WATCH_DUE,
    REFLECTOR_WATCHING,
};

/* Read-only for the owner. */
struct reflector {
    const struct reflector_kind *kind; /* borrowed */
    enum reflector_state state;
    uint64_t run;          /* of the current request, or the last one; 0: none yet */
    struct buf version;    /* to watch from */
    int64_t due_ms;        /* LIST_DUE, WATCH_DUE: when to request it */
    int64_t not_before_ms; /* Retry-After: nothing is requested earlier */
    int64_t requested_ms;  /* when the current run was requested */
    int64_t listed_ms; /* when the last complete list was requested; INT64_MIN: none */
    int64_t
        seen_ms; /* when a list or watch last delivered anything, or a watch was closed;
                          or the start */
    bool synced; /* there was a complete list */
    unsigned tries;              /* lists that failed in a row */
    unsigned relists;            /* lists in a row that a failed watch made necessary */
    struct step_failure failure; /* of lists and watches, until a watch has been opened */
};

/* Lists at once. A reflector that is {0} or was finished. `kind` is borrowed. */
void reflector_start(struct reflector *r, const struct reflector_kind *kind,
                     int64_t now_ms);
void reflector_fini(struct reflector *r);

enum reflector_request { REFLECTOR_WAIT, REFLECTOR_LIST, REFLECTOR_WATCH };
/* What to request now: a list, or a watch from `version` for reflector_watch_s. It gets the number
 * `run`, greater than any before, and ends the request before it. */
enum reflector_request reflector_tick(struct reflector *r, int64_t now_ms, uint64_t run);
/* When the next tick has an effect; INT64_MAX: not before something happens. */
int64_t reflector_due(const struct reflector *r);
/* timeoutSeconds of a watch; `random`: any number. */
int64_t reflector_watch_s(int64_t watch_s, uint64_t random);

/* Does the input of this run count? The rest is for such inputs only. */
bool reflector_is_current(const struct reflector *r, uint64_t run);
/* The list or watch has delivered an object or a bookmark of that version, or the watch was opened
 * (empty version). */
void reflector_delivered(struct reflector *r, int64_t now_ms, struct rng *rng,
                         struct span version);

enum reflector_end {
    REFLECTOR_LISTED,       /* the list is complete: what it lacks does not exist */
    REFLECTOR_RESTORED,     /* the same, and the API server was restored from a backup */
    REFLECTOR_ABSENT,       /* the kind is not served: an empty list */
    REFLECTOR_CLOSED,       /* the server ended the watch: normal */
    REFLECTOR_FAILED,       /* to be logged */
    REFLECTOR_FAILED_AGAIN, /* as logged before: see step_failed */
};
/* The run has ended. `version`: of a complete list. `err`: NULL or code ERR_NONE: none.
 * `retry_after_ms`: -1: none; more than a minute counts as a minute. */
enum reflector_end reflector_ended(struct reflector *r, int64_t now_ms, struct rng *rng,
                                   struct span version, const struct err *err,
                                   int64_t retry_after_ms);

/* The owner needs a new list now. */
void reflector_relist(struct reflector *r, int64_t now_ms);
/* Another request shows that the API server works again: shortens the back-off. */
void reflector_retry_soon(struct reflector *r, int64_t now_ms);

/* Since when is the state of the objects not confirmed? -1: list and watch work. It is the first
 * failure after a watch worked, or the last delivery (or end of a watch) before a long silence or
 * ERR_TIMEOUT. */
int64_t reflector_unknown_since(const struct reflector *r, int64_t now_ms);
