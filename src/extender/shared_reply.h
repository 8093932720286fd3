/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/budget.h"
#include "extender/seats.h"
#include "wire/httpd.h"

/*
 * Large replies that many clients share: inspect, and the values of nodes and cards in
 * metrics. A text is rendered once per state of the ledger; a reply is a reference to it.
 *
 * A client that does not read keeps a text in memory. At most SHARED_REPLY_TEXTS of each
 * kind exist. While two are being read, a new client gets the newest one if it is less
 * than SHARED_REPLY_FRESH_MS old. If all are being read, the oldest one is given up after
 * SHARED_REPLY_READ_MS: the connections of its readers are closed.
 */

enum shared_reply_kind { SHARED_REPLY_INSPECT, SHARED_REPLY_METRICS };
enum {
    SHARED_REPLY_KINDS = SHARED_REPLY_METRICS + 1,
    SHARED_REPLY_TEXTS = 3,
    SHARED_REPLY_FRESH_MS = 1000,
    SHARED_REPLY_READ_MS = 1000,
    SHARED_REPLY_READERS = 256, /* concurrent replies on both ports ... */
    SHARED_REPLY_MAIN_READERS =
        16, /* ... and on the main port, where each has a thread */
};

struct shared_replies;

/* New. `budget` is charged for the texts; borrowed. */
struct shared_replies *shared_replies_new(struct budget *budget);
/* No reply may be open. NULL is accepted. */
void shared_replies_free(struct shared_replies *s);

struct shared_reply_source {
    enum shared_reply_kind kind;
    struct span state; /* changes whenever the text does */
    void (*render)(void *ctx, struct buf *out);
    void *ctx;
};
/* Answers with the text, after what reply->body has; or with 503 and Retry-After. Renders
 * it, unless there is one of the same state, or one whose rendering began during this
 * call. `main`: the request came on the main port. */
void shared_reply_send(struct shared_replies *s, const struct shared_reply_source *source,
                       bool main, struct httpd_reply *reply);
