/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/budget.h"
#include "wire/httpd.h"

/*
 * Large replies that many clients share: inspect, and the values of nodes and cards in
 * metrics. A text is rendered once per state of the ledger; a reply is a reference to it.
 *
 * A client that does not read keeps a text in memory. At most VIEW_SNAPSHOT_TEXTS of each
 * kind exist. While two are being read, a new client gets the newest one if it is less
 * than VIEW_SNAPSHOT_FRESH_MS old. If all are being read, the oldest one is given up after
 * VIEW_SNAPSHOT_READ_MS: the connections of its readers are closed.
 */

enum view_snapshot_kind { VIEW_SNAPSHOT_INSPECT, VIEW_SNAPSHOT_METRICS };
enum {
    VIEW_SNAPSHOT_KINDS = VIEW_SNAPSHOT_METRICS + 1,
    VIEW_SNAPSHOT_TEXTS = 3,
    VIEW_SNAPSHOT_FRESH_MS = 1000,
    VIEW_SNAPSHOT_READ_MS = 1000,
    VIEW_SNAPSHOT_READERS = 256, /* concurrent replies on both ports ... */
    VIEW_SNAPSHOT_MAIN_READERS =
        16, /* ... and on the main port, where each has a thread */
};

struct view_snapshots;

/* New. `budget` is charged for the texts; borrowed. */
struct view_snapshots *view_snapshots_new(struct budget *budget);
/* No reply may be open. NULL is accepted. */
void view_snapshots_free(struct view_snapshots *s);

struct view_snapshot_source {
    enum view_snapshot_kind kind;
    struct span state; /* changes whenever the text does */
    void (*render)(void *ctx, struct buf *out);
    void *ctx;
};
/* Answers with the text, after what reply->body has; or with 503 and Retry-After. Renders
 * it, unless there is one of the same state, or one whose rendering began during this
 * call. `main`: the request came on the main port. */
void view_snapshot_reply(struct view_snapshots *s,
                         const struct view_snapshot_source *source, bool main,
                         struct httpd_reply *reply);
