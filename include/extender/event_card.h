/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "extender/event_recorder.h"

/*
 * What is told of nodes, as events: a card was lost or is back, and more is promised of a
 * card than it has. Pure but for the recorder: it compares what it is shown with what was
 * told, and what could not be told is told later, if it is still so. What was so when it
 * saw a node first is no news.
 */

enum {
    EVENT_CARD_BURST = 10,           /* events of one node at once */
    EVENT_CARD_EVERY_MS = 30 * 1000, /* then one in so long */
    EVENT_CARD_OTHER_MS = 5 * 1000,  /* in which whoever leads has told what is news */
};

struct event_card;

struct event_card_scan {
    int64_t now_ms; /* monotonic */
    /* NULL: this process does not tell. */
    struct event_recorder *recorder;
    /* Without recorder: when another process was last seen to lead, and so to tell what
     * was news EVENT_CARD_OTHER_MS before; 0: none leads. */
    int64_t led_ms;
};

struct event_card *event_card_new(uint64_t seed); /* new */
void event_card_free(struct event_card *w);       /* NULL is accepted */

/* A look at all nodes: begin, each node once, end. A node that is not shown is forgotten.
 * Only `end` tells, so that the nodes may be shown under a lock; true: something is left
 * to tell, so look again though nothing changes. */
void event_card_begin(struct event_card *w, const struct event_card_scan *look);
void event_card_node(struct event_card *w, const struct ledger_node *node);
bool event_card_end(struct event_card *w);
