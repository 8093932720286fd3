/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "extender/recorder.h"

/*
 * What is told of nodes, as events: a card was lost or is back, and more is promised of a
 * card than it has. Pure but for the recorder: it compares what it is shown with what was
 * told, and what could not be told is told later, if it is still so. What was so when it
 * saw a node first is no news.
 */

enum {
    NODEWATCH_BURST = 10,           /* events of one node at once */
    NODEWATCH_EVERY_MS = 30 * 1000, /* then one in so long */
    NODEWATCH_OTHER_MS = 5 * 1000,  /* in which whoever leads has told what is news */
};

struct nodewatch;

struct nodewatch_look {
    int64_t now_ms; /* monotonic */
    /* NULL: this process does not tell. */
    struct recorder *recorder;
    /* Without recorder: when another process was last seen to lead, and so to tell what
     * was news NODEWATCH_OTHER_MS before; 0: none leads. */
    int64_t led_ms;
};

struct nodewatch *nodewatch_new(uint64_t seed); /* new */
void nodewatch_free(struct nodewatch *w);       /* NULL is accepted */

/* A look at all nodes: begin, each node once, end. A node that is not shown is forgotten.
 * Only `end` tells, so that the nodes may be shown under a lock; true: something is left
 * to tell, so look again though nothing changes. */
void nodewatch_begin(struct nodewatch *w, const struct nodewatch_look *look);
void nodewatch_node(struct nodewatch *w, const struct ledger_node *node);
bool nodewatch_end(struct nodewatch *w);
