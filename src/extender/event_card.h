/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "kube/event_recorder.h"

/*
 * Events of Nodes about their cards: a card was lost or is back, or has more promised
 * than it has memory. Pure but for the recorder. It compares the state of each card with
 * the state that was last reported. An event that cannot be written now is written later,
 * if the state still holds. The state at the first scan of a node is not reported.
 */

enum {
    EVENT_CARD_BURST = 10,           /* events of one node at once ... */
    EVENT_CARD_EVERY_MS = 30 * 1000, /* ... then one per interval */
    EVENT_CARD_OTHER_MS = 5 * 1000,  /* the time a leader needs to report a change */
};

struct event_card;

struct event_card_scan {
    int64_t now_ms; /* monotonic */
    /* NULL: this process is not the leader and writes no events. */
    struct event_recorder *recorder;
    /* Without recorder: when another replica was last seen to be the leader. Changes from
     * EVENT_CARD_OTHER_MS before then count as reported by it. 0: there is no leader. */
    int64_t led_ms;
};

struct event_card *event_card_new(uint64_t seed); /* new */
void event_card_free(struct event_card *w);       /* NULL is accepted */

/* A scan of all nodes: begin, each node once, end. Nodes that are left out are forgotten.
 * Only `end` writes events, so nodes may be scanned under a lock. True: something is left
 * to report, so scan again even if nothing changes. */
void event_card_begin(struct event_card *w, const struct event_card_scan *scan);
void event_card_node(struct event_card *w, const struct ledger_node *node);
bool event_card_end(struct event_card *w);
