/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * The objects of one kind, in the order of their last changes, for any number of readers.
 * Pure and not locked. Lists and watches are served from the same objects.
 *
 * Each object is in the cache once, with its latest state. Each change gives it the next
 * number. A reader is a number: it gets, in order, every object with a higher one, first
 * the initial state and then changes. An object that changes while a reader is behind
 * moves to the end. So a slow reader sees fewer states of an object, never an old one
 * after a newer one, and misses no state that lasts; it costs two integers.
 *
 * Deletions are remembered by name: up to `max_gone` of them, and at least half as many.
 * Only a reader that falls further behind has to start again; it gets a RESYNC line.
 */

struct watch_cache;
struct watch_cache_item; /* an object */

struct watch_cache_kind {
    const char *key; /* of the object in a line: "GpuNode" */
    /* The object of a DELETED line: JSON before and after its name. */
    const char *gone_head, *gone_tail;
};

/* New. `kind` is borrowed. */
struct watch_cache *watch_cache_new(const struct watch_cache_kind *kind, size_t max_gone);
void watch_cache_free(struct watch_cache *w);

/* Sets the state of an object: JSON in two parts, between which the cache puts the number
 * of the change (the resourceVersion). *item is NULL for a new object, and is set.
 * Returns whether the state changed. The name of an item never changes. Two objects may
 * share a name; after one is deleted, readers get the remaining one again. */
bool watch_cache_put(struct watch_cache *w, struct watch_cache_item **item,
                     struct span name, struct span head, struct span tail);
/* Whether watch_cache_put would change nothing. */
bool watch_cache_item_is(const struct watch_cache_item *item, struct span head,
                         struct span tail);
/* Deletes the object, frees the item and sets it to NULL. NULL is accepted. */
void watch_cache_drop(struct watch_cache *w, struct watch_cache_item **item);

uint64_t watch_cache_last(const struct watch_cache *w); /* number of the last change */
size_t watch_cache_count(const struct watch_cache *w);

/* The position of a watch. {0} starts with the initial state. */
struct watch_cache_reader {
    bool begun, synced; /* synced: the initial state is complete */
    uint64_t base, at;
};

/* Appends lines until `out` has `max` bytes or the reader is up to date. True: it is;
 * call again after the next change. The lines:
 *
 *     {"GpuNode":<object>,"Type":"SYNCED"}
 *     {"GpuNode":<object with its name>,"Type":"DELETED"}
 *     {"Type":"RESYNC"}   discard all objects: the initial state follows
 *     (empty line)        the initial state is complete, also after a RESYNC
 */
bool watch_cache_read(const struct watch_cache *w, struct watch_cache_reader *r,
                      size_t max, struct buf *out);

/* A snapshot of all objects, by name. Later changes do not affect it. Readers between two
 * changes share one. */
struct watch_cache_list;
struct watch_cache_list *watch_cache_list(struct watch_cache *w); /* a reference */
/* Releases a reference; from any thread; NULL is accepted. */
void watch_cache_list_free(struct watch_cache_list *l);
/* Appends the objects from *next on, separated by commas, until `out` has `max` bytes, and
 * sets *next behind them. True: the list is complete. */
bool watch_cache_list_read(const struct watch_cache_list *l, size_t *next, size_t max,
                           struct buf *out);
