/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "view/inspect.h"
#include "view/watch_cache.h"
#include "wire/httpd.h"

/*
 * Lists and watches of the ledger over HTTP.
 *
 * All readers of a kind are served from one cache (view/watch_cache.h), which exists while
 * there are readers and for a time after them. Each reader first brings it up to the ledger:
 * the nodes that have changed since are rendered again, once for all readers, and nothing is
 * rendered without one. The ledger's lock is taken for a bounded number of objects at a time,
 * but not by `write_text`, which takes it itself.
 */

struct view_watch;

/* How many replies are open at a time, because a client that reads slowly holds one for long.
 * The main port has a lower limit, because each occupies a thread there. */
struct view_watch_limit {
    const char *what;   /* "watches" */
    unsigned most;      /* on both ports ... */
    unsigned main_most; /* ... and on the main port */
    atomic_uint open, main_open;
};

enum {
    VIEW_WATCH_CHUNK =
        16 * 1024,             /* bytes written at a time, and buffered per slow client */
    VIEW_WATCH_PAUSE_MS = 500, /* a watch that is up to date is read at most so often */
    VIEW_WATCH_HEARTBEAT_MS = 15 * 1000,
};

struct view_watch_kind {
    struct watch_cache_words words;
    /* Puts the objects of a node. Returns how many. NULL: there are none. */
    size_t (*put_node)(void *ctx, struct watch_cache *cache,
                       struct watch_cache_owner *owner, const struct ledger *l,
                       const struct ledger_node *node);
    /* Appends the text beside the objects. NULL: there is none. */
    void (*write_text)(void *ctx, struct buf *out);
};

struct view_watch_config {
    const struct view_watch_kind *kind;
    void *ctx; /* of its functions */
    const struct view_source *source;
    struct view_watch_limit *lists, *watches; /* which several caches can share */
    struct budget *budget;                    /* as in watch_cache_new */
    int64_t idle_ms;      /* the cache is dropped without a reader for so long */
    int64_t heartbeat_ms; /* interval of the empty lines of an idle watch; 0: none */
    /* While the ledger is not current, replies have a header Warning, which kubectl prints, and
     * watches end. */
    bool warns;
};

/* As in inspect?watch=true, and in inspect: the nodes, and what follows them. `ctx` is a const
 * struct view_source. */
extern const struct view_watch_kind view_watch_inspect;

/* New. `config` is copied, what it points to is borrowed. */
struct view_watch *view_watch_new(const struct view_watch_config *config);
/* No stream may be open. NULL is accepted. */
void view_watch_free(struct view_watch *v);
/* Drops the cache if it has had no reader for idle_ms; to be called regularly. Never blocks. */
void view_watch_trim(struct view_watch *v);
/* Has the cache what the ledger was at some time? */
bool view_watch_is_filled(struct view_watch *v);

/* Answers with a list, after what reply->body has, or with a watch, which ends at `end_ms`
 * (clock_mono_ms); or with 503: too many are open. `main`: on the main port. */
void view_watch_answer(struct view_watch *v, bool main, bool watch, int64_t end_ms,
                       struct httpd_reply *reply);
