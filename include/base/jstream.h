/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/jread.h"

/*
 * JSON that arrives in pieces, handed out one item at a time.
 *
 * Two shapes, as the Kubernetes API sends them: a list, `{"kind": ..., "metadata": {...},
 * "items": [item, item, ...]}`, and a watch, values one behind the other. At most one
 * item is kept in memory: what lies whole in a piece is read where it lies, only an item
 * that is cut off is carried over to the next piece. Everything is validated, the
 * envelope too.
 */

enum jstream_shape { JSTREAM_LIST, JSTREAM_WATCH };

struct jstream_handler {
    /* Reads exactly one value from j. When jread_check(j, NULL) fails afterwards, the
     * item was cut off or bad: the handler forgets what it read and returns; a cut item
     * is handed out again, from its start, when more bytes are there. A fault of the item
     * that the handler does not take with jread_fault ends the stream. */
    void (*item)(void *ctx, struct jread *j);
    /* The same for a member of the list's envelope other than "items". NULL: skipped. */
    void (*member)(void *ctx, struct jread_str key, struct jread *j);
};

struct jstream {
    enum jstream_shape shape;
    const struct jstream_handler *handler; /* borrowed */
    void *ctx;                             /* borrowed */
    size_t max_item;                       /* bytes; a larger item is an error */
    struct jread j;
    struct buf tail; /* bytes not read yet */
    size_t retry_at; /* length of tail at which a cut item is tried again */
    enum { JSTREAM_START, JSTREAM_MEMBERS, JSTREAM_ITEMS, JSTREAM_END } state;
};

void jstream_init(struct jstream *l, enum jstream_shape shape, size_t max_item,
                  const struct jstream_handler *handler, void *ctx);
void jstream_fini(struct jstream *l);

/* Reads on. -1 when the bytes are not JSON or an item is too large; the stream cannot be
 * used any more then. Items before the bad place have been handed out. */
int jstream_feed(struct jstream *l, const char *data, size_t n, struct err *err);

/* No more bytes will follow. -1 when a list is not complete or a watch was cut off inside
 * a value. */
int jstream_end(struct jstream *l, struct err *err);
/* The same for a stream that may stop anywhere: a value that was cut off is no error, but
 * bytes that cannot begin one are (jstream_feed may have left them for later). */
int jstream_end_truncated(struct jstream *l, struct err *err);
