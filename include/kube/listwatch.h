/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/jstream.h"

/*
 * List and watch, as client-go's ListWatch: decodes the responses, which may arrive in
 * pieces of any size, and builds the queries. Pure: the caller makes the requests, passes
 * the bytes on, and decodes the objects.
 *
 *     listwatch_init
 *     listwatch_start { listwatch_begin, listwatch_data ..., listwatch_end } per page
 *     listwatch_fini
 *
 * The handler reads the objects of a list, and those of a watch's events, while their
 * bytes are parsed; only truncated objects are parsed again. Of a list's metadata, the
 * resource version and the continue token are kept. A bookmark event is passed to the
 * handler; an ERROR event ends the watch with the code and message of its Status.
 */

struct listwatch;

struct listwatch_handler {
    /* Reads exactly one object from j, like `item` of jstream_handler; may allocate from
     * f->arena. `deleted`: the event is DELETED. */
    void (*object)(void *ctx, struct jread *j, bool deleted);
    /* The watch has delivered every event up to this resource version. NULL: bookmarks
     * are ignored. */
    void (*bookmark)(void *ctx, struct span version);
    /* An event is malformed outside of its object, which may not have been delivered. */
    void (*fault)(void *ctx, const struct err *err);
};

struct listwatch {
    const struct listwatch_handler *handler; /* borrowed, like ctx */
    void *ctx;
    bool watch;
    struct buf version; /* resource version: of a list, from its metadata; for a watch,
                           set by the caller */
    struct buf next;    /* list: continue token of the next page; empty: last page */
    struct arena arena; /* for one object */
    int64_t retry_after_ms; /* from Retry-After, at most a minute; -1: no such header */
    struct err err;         /* the first error; code ERR_NONE: none */

    /* private */
    struct jstream stream;
    bool open;
    unsigned status;
    struct buf error_body; /* of a response with a status other than 200 */
    size_t delivered;      /* objects of the current event that the handler has read */
};

void listwatch_init(struct listwatch *f, const struct listwatch_handler *handler,
                    void *ctx);
void listwatch_fini(struct listwatch *f);
void listwatch_set_version(struct listwatch *f, struct span version);

/* Appends the query of the next page of a list to a path that ends in '?' or '&'. */
void listwatch_list_query(struct buf *path, const struct listwatch *f);
/* Appends the query of a watch from resource version `version`; the server ends the watch
 * after `seconds`. */
void listwatch_watch_query(struct buf *path, struct span version, int64_t seconds);
/* Appends a percent-encoded query value. */
void listwatch_escape(struct buf *path, struct span value);

/* Starts a watch, or a list from its first page. Resets everything but the version. */
void listwatch_start(struct listwatch *f, bool watch);
/* The status and headers of a response. */
void listwatch_begin(struct listwatch *f, unsigned status, int64_t retry_after_s);
/* A piece of its body. False: stop reading the response. */
bool listwatch_data(struct listwatch *f, const char *p, size_t n);
/* For the handler: fails the list or watch. */
void listwatch_fail(struct listwatch *f, const struct err *why);
/* The response has ended, or there was none; `why` is NULL if it is complete. Returns -1
 * with the error in f->err if the list is incomplete or the watch has failed. A watch may
 * end between any two bytes. */
int listwatch_end(struct listwatch *f, const struct err *why);
