/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/budget.h"
#include "base/list.h"
#include "base/str.h"

/*
 * Objects of one kind and a text beside them, in the order of their last changes, for any
 * number of readers. Pure and not locked. Lists and watches are served from the same bytes.
 *
 * Each object is in the cache once, with its latest state, and each change moves it to the
 * end. A watch is a position between two objects: it gets every object behind it, first the
 * initial state and then changes. So a slow reader sees fewer states of an object, never an
 * old one after a newer one, and misses no state that lasts.
 *
 * Deletions are remembered by name: up to `max_gone` of them, and at least half as many.
 * Only a reader that falls further behind has to start again.
 *
 * A state of more than WATCH_CACHE_WHOLE bytes is sent in parts. A state that has changed
 * since, and is still being sent, is kept; these states together take a budget, beyond which
 * the readers of the oldest ones are cut. What is current is not limited.
 */

enum { WATCH_CACHE_WHOLE = 16 * 1024 };

struct watch_cache;
struct watch_cache_object;
struct watch_cache_bytes;

/* What is around objects and text; all static. */
struct watch_cache_words {
    const char *object;          /* before an object in a line */
    const char *gone, *gone_end; /* around the name of a deleted one */
    const char *text, *text_end; /* around the text in a line */
    const char *list;            /* before the objects of a list, ... */
    const char *list_text;       /* ... between them and the text, ... */
    const char *list_end;        /* ... and after it */
    bool resync; /* a reader that falls behind gets a RESYNC line; else it is cut */
};

/* Who puts objects into one cache: each of its runs names all of its objects. {0} has none; one
 * with objects must not move. */
struct watch_cache_owner {
    struct watch_cache_object *first;
};

/* New. `budget`: see above; NULL: none. Borrowed, like the words. */
struct watch_cache *watch_cache_new(const struct watch_cache_words *words,
                                    size_t max_gone, struct budget *budget);
/* Releases all objects, of whichever owner, and the text. No reader may be left. */
void watch_cache_clear(struct watch_cache *w);
void watch_cache_free(struct watch_cache *w); /* as watch_cache_clear */

/* The state of an object. What is not compared with the state before changes only with it. */
struct watch_cache_state {
    struct span name;
    struct span json; /* with WATCH_CACHE_NUMBER, and times */
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
/* Ends a run: deletes the owner's objects that were not put since the last one. Readers get
 * other objects of their names again. */
void watch_cache_sweep(struct watch_cache *w, struct watch_cache_owner *owner);
/* Sets the text. */
void watch_cache_set_text(struct watch_cache *w, struct span text);

/* A place in the order of the changes. */
struct watch_cache_place {
    struct list link;
    uint64_t seq; /* of the change; 0: a reader's */
};

/* A watch or a list. */
struct watch_cache_reader {
    struct watch_cache_place place;
    uint64_t base, at;  /* number of the last change: at its start; that it has got */
    bool begun, synced; /* synced: the initial state is complete */
    struct list link;   /* among the readers of the state that is sent in parts: */
    struct watch_cache_bytes *bytes; /* NULL: none */
    size_t sent;                     /* bytes of it */
    const char *end;                 /* what follows it */
    struct buf last;                 /* list: the name of the last object, ... */
    size_t namesakes;                /* ... how many of that name there were */
    bool listed;                     /* list: all objects were */
    bool cut;
};
void watch_cache_reader_init(struct watch_cache_reader *r);
void watch_cache_reader_fini(struct watch_cache *w, struct watch_cache_reader *r);

enum watch_cache_result {
    WATCH_CACHE_MORE, /* `out` has `max` bytes or more */
    WATCH_CACHE_ALL, /* a watch is up to date: read again after the next change. A list is
                         complete */
    WATCH_CACHE_CUT, /* the reader has to start again */
};

/* Appends lines until `out` has `max` bytes or the reader is up to date. The lines:
 *
 *     {"GpuNode":<object>,"Type":"SYNCED"}
 *     {"GpuNode":<object with its name>,"Type":"DELETED"}
 *     {"Type":"RESYNC"}   discard all objects: the initial state follows
 *     (empty line)        the initial state is complete, also after a RESYNC
 */
enum watch_cache_result watch_cache_read(struct watch_cache *w,
                                         struct watch_cache_reader *r, size_t max,
                                         struct buf *out);

/* Appends the objects by name, and then the text, until `out` has `max` bytes or the list is
 * complete. */
enum watch_cache_result watch_cache_list(struct watch_cache *w,
                                         struct watch_cache_reader *r, size_t max,
                                         struct buf *out);
