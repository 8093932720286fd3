/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "extender/core_driver.h"
#include "kube/event_recorder.h"

/*
 * Events of what a scan of the ledger shows, written by the leader: of Nodes about their cards
 * (a card was lost or is back, or has more promised than it has memory), and of bound pods
 * whose annotations differ from their request, or from the cards that the kubelet gave
 * (DRIFT_FORGED).
 *
 * An event that cannot be written now is written later, if the state still holds. The state of
 * cards at the first scan of a node is not reported. The other replicas scan too, and write
 * what the last leader did not report once they lead.
 */

struct event_scan;

struct event_scan *event_scan_new(void);    /* new */
void event_scan_free(struct event_scan *s); /* NULL is accepted */

/* Starts the thread, which scans once a second if the ledger has changed or an event is left
 * to write. `driver` and `recorder` are borrowed. */
void event_scan_start(struct event_scan *s, struct core_driver *driver,
                      struct event_recorder *recorder);
void event_scan_stop(struct event_scan *s); /* joins; NULL is accepted */

/* -- a scan; pure but for the recorder -- */

enum {
    EVENT_SCAN_BURST = 10,           /* events about the cards of one node at once ... */
    EVENT_SCAN_EVERY_MS = 30 * 1000, /* ... then one per interval */
    EVENT_SCAN_OTHER_MS = 5 * 1000,  /* the time a leader needs to report a change */
    /* A difference of cards alone is reported when it lasts: the podList shows a former pod
     * with the same name until the next poll of scv-agent. */
    EVENT_SCAN_CARDS_MS = 2 * 60 * 1000,
    EVENT_SCAN_AGAIN_MS = 60 * 1000, /* between two attempts to write an event of a pod */
};

struct event_scan_settings {
    int64_t now_ms; /* monotonic */
    /* NULL: this process is not the leader and writes no events. */
    struct event_recorder *recorder;
    /* Without recorder: when another replica was last seen to be the leader. Changes from
     * EVENT_SCAN_OTHER_MS before then count as reported by it. 0: there is no leader. */
    int64_t led_ms;
};

/* A scan of all nodes: begin, each node once, end. Nodes that are left out are forgotten.
 * True: something is left to report, so scan again even if nothing changes. */
void event_scan_begin(struct event_scan *s, const struct event_scan_settings *settings);
void event_scan_node(struct event_scan *s, const struct ledger_node *node);
bool event_scan_end(struct event_scan *s);
