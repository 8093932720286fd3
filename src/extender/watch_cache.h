/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/list.h"
#include "base/str.h"

/*
 * The objects of one kind, in the order of their last changes, for any number of readers.
 * Pure and not locked. Lists and watches are served from the same objects.
 *
 * Each object is in the cache once, with its latest state, and each change moves it to the
 * end. A watch is a position between two objects: it gets every object behind it, first the
 * initial state and then changes. So a slow reader sees fewer states of an object, never an
 * old one after a newer one, and misses no state that lasts.
 *
 * Deletions are remembered by name: up to `max_gone` of them, and at least half as many.
 * Only a reader that falls further behind has to start again; it gets a RESYNC line.
 */

struct watch_cache;
struct watch_cache_object;

/* Who puts objects: each of its runs names all of its objects. {0} has none; one with objects
 * must not move. */
struct watch_cache_owner {
    struct watch_cache_object *first;
};

/* New. `key` is that of an object in a line ("GpuNode"), `gone_tail` the JSON after the
 * metadata of a deleted one; both are static. */
struct watch_cache *watch_cache_new(const char *key, const char *gone_tail,
                                    size_t max_gone);
/* Releases all objects, of whichever owner. No reader may be left. */
void watch_cache_clear(struct watch_cache *w);
void watch_cache_free(struct watch_cache *w); /* as watch_cache_clear */

/* The state of an object. What is not compared with the state before changes only with it. */
struct watch_cache_state {
    struct span name;
    struct span json; /* with WATCH_CACHE_NUMBER once, and times */
    bool healthy;
    int64_t now_s, reported_s; /* not compared; reported_s 0: unknown */
};
/* In the JSON of a state: the number of the change; the times (RFC 3339, or null) of its report,
 * of the last change to healthy, and of the last change of `healthy`. */
#define WATCH_CACHE_NUMBER     "\1"
#define WATCH_CACHE_REPORTED   "\2"
#define WATCH_CACHE_RECOVERED  "\3"
#define WATCH_CACHE_TRANSITION "\4"
/* Appends a time, or null for 0. */
void watch_cache_write_time(struct buf *out, int64_t seconds);

/* Sets the state of the owner's object of that name, which may be new. An owner can have several
 * objects of one name, and so can two owners. */
void watch_cache_put(struct watch_cache *w, struct watch_cache_owner *owner,
                     const struct watch_cache_state *state);
/* Ends a run: deletes the owner's objects that were not put since the last one, of whichever
 * cache. Readers get other objects of their names again. */
void watch_cache_sweep(struct watch_cache_owner *owner);

/* A place in the order of the changes. */
struct watch_cache_place {
    struct list link;
    uint64_t seq; /* of the change; 0: a reader's */
};

/* A watch: zeroed, and list_init(&place.link). list_remove of that link ends it. */
struct watch_cache_reader {
    struct watch_cache_place place;
    uint64_t base, at;  /* number of the last change: at its start; that it has got */
    bool begun, synced; /* synced: the initial state is complete */
};

/* Appends lines until `out` has `max` bytes or the reader is up to date. True: it is;
 * call again after the next change. The lines:
 *
 *     {"GpuNode":<object>,"Type":"SYNCED"}
 *     {"GpuNode":<object with its name>,"Type":"DELETED"}
 *     {"Type":"RESYNC"}   discard all objects: the initial state follows
 *     (empty line)        the initial state is complete, also after a RESYNC
 */
bool watch_cache_read(struct watch_cache *w, struct watch_cache_reader *r, size_t max,
                      struct buf *out);

/* Appends the objects whose names follow *last, separated by commas, until `out` has `max`
 * bytes; *last is empty at first. True: the list is complete. */
bool watch_cache_list(const struct watch_cache *w, struct buf *last, size_t max,
                      struct buf *out);
