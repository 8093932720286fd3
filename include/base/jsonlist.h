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

enum jsonlist_shape { JSONLIST_LIST, JSONLIST_WATCH };

struct jsonlist_handler {
    /* Reads exactly one value from j. When jread_check(j, NULL) fails afterwards, the
     * item was cut off or bad: the handler forgets what it read and returns; a cut item
     * is handed out again, from its start, when more bytes are there. A fault of the item
     * that the handler does not take with jread_fault ends the stream. */
    void (*item)(void *ctx, struct jread *j);
    /* The same for a member of the list's envelope other than "items". NULL: skipped. */
    void (*member)(void *ctx, struct jread_str key, struct jread *j);
};

struct jsonlist {
    enum jsonlist_shape shape;
    const struct jsonlist_handler *handler; /* borrowed */
    void *ctx;                              /* borrowed */
    size_t max_item;                        /* bytes; a larger item is an error */
    struct jread j;
    struct buf tail; /* bytes not read yet */
    size_t retry_at; /* length of tail at which a cut item is tried again */
    enum { JSONLIST_START, JSONLIST_MEMBERS, JSONLIST_ITEMS, JSONLIST_END } state;
};

void jsonlist_init(struct jsonlist *l, enum jsonlist_shape shape, size_t max_item,
                   const struct jsonlist_handler *handler, void *ctx);
void jsonlist_fini(struct jsonlist *l);

/* Reads on. -1 when the bytes are not JSON or an item is too large; the stream cannot be
 * used any more then. Items before the bad place have been handed out. */
int jsonlist_feed(struct jsonlist *l, const char *data, size_t n, struct err *err);

/* No more bytes will follow. -1 when a list is not complete or a watch was cut off inside
 * a value. */
int jsonlist_end(struct jsonlist *l, struct err *err);
/* The same for a stream that may stop anywhere: a value that was cut off is no error, but
 * bytes that cannot begin one are (jsonlist_feed may have left them for later). */
int jsonlist_cut(struct jsonlist *l, struct err *err);
