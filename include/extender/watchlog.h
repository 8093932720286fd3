/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * The objects of one kind that are shown, in the order in which they last changed, for
 * any number of readers. Pure, not locked, and the same for a list and a watch.
 *
 * Each object is in it once, with its last state; each change gives it the next number. A
 * reader holds the number that it has come to and is given, in that order, everything
 * with a higher one: first all there is, then what changes. What changes while it reads
 * moves behind what it has still to read. So a reader that is slow sees fewer states of
 * an object, never an old one after a newer one, and misses none that lasts; and costs
 * two numbers.
 *
 * Objects that went are remembered by name, up to `max_gone` of them and half as many at
 * least. Only a reader who falls behind further than that has to begin anew: it is told.
 */

struct watchlog;
struct watch_item; /* an object that is there */

struct watchlog_kind {
    const char *key; /* of the object in a line: "GpuNode" */
    /* The object that a DELETED line has, in two parts around its name: JSON. */
    const char *gone_head, *gone_tail;
};

/* New. `kind` is borrowed. */
struct watchlog *watchlog_new(const struct watchlog_kind *kind, size_t max_gone);
void watchlog_free(struct watchlog *w);

/* Two objects may have one name; a line that deletes it is followed by the one that
 * stays.
 *
 * Shows the object: JSON in two parts, between which the log puts the number of the
 * change (its resourceVersion). *item is NULL for a new one, and set. Returns whether
 * anything changed. The name of an item stays what it was. */
bool watchlog_put(struct watchlog *w, struct watch_item **item, struct span name,
                  struct span head, struct span tail);
/* Would watchlog_put change nothing? */
bool watch_item_is(const struct watch_item *item, struct span head, struct span tail);
/* It is gone. Frees the item and sets it to NULL; NULL is accepted. */
void watchlog_drop(struct watchlog *w, struct watch_item **item);

uint64_t watchlog_last(const struct watchlog *w); /* number of the last change */
size_t watchlog_count(const struct watchlog *w);

/* A watch. {0} begins with all there is. */
struct watch_reader {
    bool begun, told; /* told: that it has seen all there was when it began */
    uint64_t base, at;
};

/* Appends lines until `out` has `max` bytes, or the reader has all there is. True: it
 * has, and is to be asked again after the next change. A line is
 *
 *     {"GpuNode":<object>,"Type":"SYNCED"}
 *     {"GpuNode":<object with its name>,"Type":"DELETED"}
 *     {"Type":"RESYNC"}    forget all: what there is follows from the start
 *     (nothing)            all there was at the start, or at RESYNC, has been said
 */
bool watchlog_read(const struct watchlog *w, struct watch_reader *r, size_t max,
                   struct buf *out);

/* All objects as they are now, by name; they stay as they are while others change. */
struct watch_list;
struct watch_list *watchlog_list(const struct watchlog *w);
void watch_list_free(struct watch_list *l); /* NULL is accepted; from any thread */
/* Appends the next ones, separated by commas, until `out` has `max` bytes. True: that was
 * the last. */
bool watch_list_read(struct watch_list *l, size_t max, struct buf *out);
