/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "kube/event_recorder.h"

/*
 * Events of bound pods whose annotations differ from their request, or from the cards that
 * the kubelet gave (DRIFT_FORGED). Pure but for the recorder. One event per pod and text.
 * An event that the recorder does not take is written later, if the difference still holds.
 */

enum {
    /* A difference of cards alone is reported when it lasts: the podList shows a former pod
     * with the same name until the next poll of scv-agent. */
    EVENT_FORGED_CARDS_MS = 2 * 60 * 1000,
    EVENT_FORGED_AGAIN_MS = 60 * 1000, /* between two attempts to write an event */
    EVENT_FORGED_OTHER_MS = 5 * 1000,  /* the time a leader needs to report a change */
};

struct event_forged;

struct event_forged_scan {
    int64_t now_ms; /* monotonic */
    /* NULL: this process is not the leader and writes no events. */
    struct event_recorder *recorder;
    /* Without recorder: when another replica was last seen to be the leader. Differences
     * from EVENT_FORGED_OTHER_MS before then count as reported by it. 0: no leader. */
    int64_t led_ms;
};

struct event_forged *event_forged_new(uint64_t seed); /* new */
void event_forged_free(struct event_forged *f);       /* NULL is accepted */

/* A scan of all nodes: begin, each node once, end. Only `end` writes events, so nodes may be
 * scanned under a lock. True: something is left to report, so scan again even if nothing
 * changes. */
void event_forged_begin(struct event_forged *f, const struct event_forged_scan *scan);
void event_forged_node(struct event_forged *f, const struct ledger_node *node);
bool event_forged_end(struct event_forged *f);
