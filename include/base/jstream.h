/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/jread.h"

/*
 * A streaming JSON decoder: it takes the input in pieces and passes it on item by item.
 *
 * Two shapes, as the Kubernetes API sends them: a list, `{"kind": ..., "metadata": {...},
 * "items": [item, item, ...]}`, and a watch, a sequence of values. At most one item is
 * kept in memory: an item that is complete in a piece is read in place; an incomplete one
 * is copied and completed by the next piece. Everything is validated, the list's envelope
 * too.
 */

enum jstream_shape { JSTREAM_LIST, JSTREAM_WATCH };

struct jstream_handler {
    /* Reads exactly one value from j. If jread_check(j, NULL) fails afterwards, the item
     * is truncated or invalid: the handler discards it and returns; a truncated item is
     * passed again, from its start, when more bytes have arrived. A fault that the
     * handler does not clear with jread_fault ends the stream with an error. */
    void (*item)(void *ctx, struct jread *j);
    /* Like `item`, for a member of the list other than "items". NULL: members are
     * skipped. */
    void (*member)(void *ctx, struct jread_str key, struct jread *j);
};

struct jstream {
    enum jstream_shape shape;
    const struct jstream_handler *handler; /* borrowed */
    void *ctx;                             /* borrowed */
    size_t max_item;                       /* bytes; a larger item is ERR_TOO_LARGE */
    struct jread j;
    struct buf tail; /* bytes of an incomplete item */
    size_t retry_at; /* length of tail at which the item is read again */
    enum { JSTREAM_START, JSTREAM_MEMBERS, JSTREAM_ITEMS, JSTREAM_END } state;
};

void jstream_init(struct jstream *l, enum jstream_shape shape, size_t max_item,
                  const struct jstream_handler *handler, void *ctx);
void jstream_fini(struct jstream *l);

/* Decodes the next n bytes. -1 if they are not JSON (ERR_INVALID) or an item is too large
 * (ERR_TOO_LARGE); after an error only jstream_fini may be called. Items before the error
 * have been passed to the handler. */
int jstream_feed(struct jstream *l, const char *data, size_t n, struct err *err);

/* Ends the input. -1 if the list is incomplete, or the watch ends inside a value. */
int jstream_end(struct jstream *l, struct err *err);
/* Ends the input of a stream that may stop anywhere, such as a watch: a truncated value
 * is not an error, but buffered bytes that cannot begin a value are. */
int jstream_end_truncated(struct jstream *l, struct err *err);
