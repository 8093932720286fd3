/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/jstream.h"

/*
 * The answer to a list or to a watch, as bytes that may be cut anywhere. Pure: whoever
 * has the connection carries the bytes, and says what is an object.
 *
 *     listwatch_init
 *     listwatch_start { listwatch_begin, listwatch_data ..., listwatch_end } per page
 *     listwatch_fini
 *
 * The objects of a list and of a watch's events go to the reader one by one, while they
 * are read: nothing is read twice but what was cut off. Of the rest of a list, the
 * version and the token of the next page are kept; of a watch, bookmarks are handed on,
 * and an ERROR ends it with the code and the message of its Status.
 */

struct listwatch;

struct listwatch_handler {
    /* Reads exactly one object from j, as the item of jstream_handler; strings may go
     * into f->arena. `gone`: it was deleted. */
    void (*object)(void *ctx, struct jread *j, bool gone);
    /* Everything before this version has been told. NULL: not wanted. */
    void (*bookmark)(void *ctx, struct span version);
    /* An event with a fault outside of its object, of which perhaps nothing was handed
     * on. */
    void (*fault)(void *ctx, const struct err *err);
};

struct listwatch {
    const struct listwatch_handler *reader; /* borrowed, as the next */
    void *ctx;
    bool watch;
    struct buf version; /* of a list, from its pages; of a watch, the caller's to set */
    struct buf next;    /* list: the token of the next page; empty: there is none */
    struct arena arena; /* for one object */
    int64_t retry_after_ms; /* what the server asks for, a minute at most; -1: nothing */
    struct err err;         /* the first failure counts */

    /* of listwatch.c alone */
    struct jstream list;
    bool open;
    unsigned status;
    struct buf error_body; /* of an answer that is not 200 */
    size_t handed; /* objects of the event that is being read, handed on already */
};

void listwatch_init(struct listwatch *f, const struct listwatch_handler *reader,
                    void *ctx);
void listwatch_fini(struct listwatch *f);
void listwatch_set_version(struct listwatch *f, struct span version);

/* Appends to a path, behind its '?' or '&', what asks for the next page of a list; or for
 * a watch from `version` on, for so many seconds. */
void listwatch_list_query(struct buf *path, const struct listwatch *f);
void listwatch_watch_query(struct buf *path, struct span version, int64_t seconds);
/* Appends a value as it stands in a query. */
void listwatch_escape(struct buf *path, struct span value);

/* Begins a watch, or a list with its first page. All but the version is forgotten. */
void listwatch_start(struct listwatch *f, bool watch);
/* The answer to that begins, or to the request for the next page. */
void listwatch_begin(struct listwatch *f, unsigned status, int64_t retry_after_s);
/* A piece of its body. False: the rest is not wanted. */
bool listwatch_data(struct listwatch *f, const char *p, size_t n);
/* For the reader: the rest is not wanted, and why. */
void listwatch_fail(struct listwatch *f, const struct err *why);
/* The answer has ended, or there was none; `why` is NULL if as announced. Returns -1,
 * with the reason in f->failed, when it was not whole. A watch may end between any two
 * bytes. */
int listwatch_end(struct listwatch *f, const struct err *why);
