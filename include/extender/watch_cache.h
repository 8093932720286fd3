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

struct watch_cache;
struct watch_cache_item; /* an object that is there */

struct watch_cache_kind {
    const char *key; /* of the object in a line: "GpuNode" */
    /* The object that a DELETED line has, in two parts around its name: JSON. */
    const char *gone_head, *gone_tail;
};

/* New. `kind` is borrowed. */
struct watch_cache *watch_cache_new(const struct watch_cache_kind *kind, size_t max_gone);
void watch_cache_free(struct watch_cache *w);

/* Two objects may have one name; a line that deletes it is followed by the one that
 * stays.
 *
 * Shows the object: JSON in two parts, between which the log puts the number of the
 * change (its resourceVersion). *item is NULL for a new one, and set. Returns whether
 * anything changed. The name of an item stays what it was. */
bool watch_cache_put(struct watch_cache *w, struct watch_cache_item **item,
                     struct span name, struct span head, struct span tail);
/* Would watch_cache_put change nothing? */
bool watch_cache_item_is(const struct watch_cache_item *item, struct span head,
                         struct span tail);
/* It is gone. Frees the item and sets it to NULL; NULL is accepted. */
void watch_cache_drop(struct watch_cache *w, struct watch_cache_item **item);

uint64_t watch_cache_last(const struct watch_cache *w); /* number of the last change */
size_t watch_cache_count(const struct watch_cache *w);

/* A watch. {0} begins with all there is. */
struct watch_cache_reader {
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
bool watch_cache_read(const struct watch_cache *w, struct watch_cache_reader *r,
                      size_t max, struct buf *out);

/* All objects as they are now, by name; they stay as they are while others change. */
struct watch_cache_list;
struct watch_cache_list *watch_cache_list(const struct watch_cache *w);
void watch_cache_list_free(
    struct watch_cache_list *l); /* NULL is accepted; from any thread */
/* Appends the next ones, separated by commas, until `out` has `max` bytes. True: that was
 * the last. */
bool watch_cache_list_read(struct watch_cache_list *l, size_t max, struct buf *out);
