/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "extender/recorder.h"

/*
 * What is told of nodes, as events: a card was lost or is back, and more is promised of a
 * card than it has. Pure but for the recorder: it compares what it is shown with what it
 * was shown before. What was so when it saw a node first is no news.
 */

struct nodewatch;

struct nodewatch *nodewatch_new(uint64_t seed); /* new */
void nodewatch_free(struct nodewatch *w);       /* NULL is accepted */

/* A look at all nodes: begin, each node once, end. A node that is not shown is forgotten.
 * `recorder` NULL: nothing is told (another process does). Only `end` tells, so that the
 * nodes may be shown under a lock. */
void nodewatch_begin(struct nodewatch *w, struct recorder *recorder);
void nodewatch_node(struct nodewatch *w, const struct ledger_node *node);
void nodewatch_end(struct nodewatch *w);
