/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/jread.h"
#include "kube/client.h"

/*
 * List and watch, as client-go's ListWatch.
 *
 * `struct list_watch` decodes the responses, which may arrive in pieces of any size, and
 * list_watch_request builds the requests. Pure: the caller makes the requests,
 * passes the bytes on, and decodes the objects.
 *
 *     list_watch_init
 *     list_watch_start { list_watch_begin, list_watch_data ..., list_watch_end } per page
 *     list_watch_fini
 *
 * The handler reads an item of a list, or the object of an event, when all its bytes have
 * arrived; at most one is kept in memory, and a complete one is read in place. Everything is
 * validated. Of a list's metadata, the resource version and the continue token are kept. A
 * bookmark is passed to the handler; an ERROR event ends the watch with the code and message
 * of its Status.
 *
 * `struct list_watch_loop`, below, makes the requests. When to list and to watch,
 * domain/reflector.h says.
 */

struct list_watch;

struct list_watch_handler {
    /* Reads exactly one object from j; may allocate from f->arena. If jread_check(j, NULL)
     * fails afterwards, the item of a list is truncated or invalid: the handler discards it
     * and returns, and a truncated one is passed again, from its start. A fault of an item
     * that the handler does not clear with jread_fault fails the list. `deleted`: the event
     * is DELETED. */
    void (*object)(void *ctx, struct jread *j, bool deleted);
    /* The watch has delivered every event up to this resource version; empty: the watch was
     * opened. */
    void (*bookmark)(void *ctx, struct span version);
    /* An event is malformed outside of its object, which is not delivered. */
    void (*fault)(void *ctx, const struct err *err);
};

struct list_watch {
    const struct list_watch_handler *handler; /* borrowed, like ctx */
    void *ctx;
    bool watch;
    struct buf version; /* resource version: of a list, from its metadata; for a watch,
                           set by the caller before list_watch_request */
    struct buf next;    /* list: continue token of the next page; empty: last page */
    struct arena arena; /* for one object */
    int64_t retry_after_ms; /* from Retry-After, at most a minute; -1: no such header */
    struct err err;         /* the first error; code ERR_NONE: none */

    /* private */
    unsigned status;
    enum list_watch_state {
        LIST_WATCH_EVENTS,
        LIST_WATCH_LIST,
        LIST_WATCH_MEMBERS,
        LIST_WATCH_ITEMS,
        LIST_WATCH_END,
    } state;
    struct jread j;
    struct buf
        tail; /* bytes of an incomplete item; or the body, if the status is not 200 */
    size_t retry_at; /* length of tail at which the item is read again */
};

void list_watch_init(struct list_watch *f, const struct list_watch_handler *handler,
                     void *ctx);
void list_watch_fini(struct list_watch *f);

/* Sets the request of the next page of a list, or of a watch from f->version that the server ends
 * after `watch_s`. `path` ends in '?' or '&'. Strings are in the arena. `gzip`: request compressed
 * lists. */
void list_watch_request(const struct list_watch *f, const char *path, int64_t watch_s,
                        bool gzip, struct arena *a, struct kube_request *request);
/* Appends a percent-encoded query value. */
void list_watch_escape(struct buf *path, struct span value);

/* Starts a watch, or a list from its first page. Resets everything but the version. */
void list_watch_start(struct list_watch *f, bool watch);
/* The status and headers of a response. */
void list_watch_begin(struct list_watch *f, unsigned status, int64_t retry_after_s);
/* A piece of its body. False: stop reading the response. */
bool list_watch_data(struct list_watch *f, const char *p, size_t n);
/* For the handler: fails the list or watch. */
void list_watch_fail(struct list_watch *f, const struct err *why);
/* The response has ended, or there was none; `why` is NULL if it is complete. Returns -1
 * with the error in f->err if the list is incomplete or the watch has failed. A watch may
 * end between any two bytes. */
int list_watch_end(struct list_watch *f, const struct err *why);

/*
 * The requests of several lists and watches, each in a slot, on one event loop: the owner
 * runs the loop itself, or a thread does. A slot has one request at a time. Each run, a list
 * with all its pages or a watch, has a number; a newer one cancels an older one.
 */

struct list_watch_loop;

struct list_watch_run {
    uint64_t run; /* 1, 2, ... in each slot */
    bool watch;
    const char *version; /* of a watch; or NULL */
};

/* In the thread that runs the loop. `slot` < n_slots. */
struct list_watch_fns {
    /* A run begins. The run before it has ended, or is canceled without an end. Or NULL. */
    void (*start)(void *ctx, size_t slot, const struct list_watch_run *run);
    /* Sets the request of the watch, or of the list's next page; strings in the arena.
     * Returns what decodes the response. */
    struct list_watch *(*request)(void *ctx, size_t slot, struct arena *a,
                                  struct kube_request *request);
    /* As list_watch_end; also without credentials or an answer. True: the list has another
     * page, which is requested at once. */
    bool (*end)(void *ctx, size_t slot, const struct err *why);
    /* Before each wait of the loop, at least once a second; may start and cancel runs.
     * Returns the milliseconds after which it wants to be called again. Or NULL. */
    int64_t (*tick)(void *ctx);
};

/* New. `client`, `fns` and `ctx` are borrowed. */
struct list_watch_loop *list_watch_loop_new(struct kube_client *client, size_t n_slots,
                                            const struct list_watch_fns *fns, void *ctx);
/* Cancels all requests. No thread may run the loop. NULL is accepted. */
void list_watch_loop_free(struct list_watch_loop *l);

/* Queues a copy of the run, unless the slot has had a newer one. From any thread; never
 * blocks. */
void list_watch_loop_start(struct list_watch_loop *l, size_t slot,
                           const struct list_watch_run *run);
/* Makes the loop call `tick` soon. From any thread. */
void list_watch_loop_wake(struct list_watch_loop *l);
/* The server's clock when the answer to the slot's last list began, as httpc_stream_date_s;
 * 0: none. */
int64_t list_watch_loop_date_s(const struct list_watch_loop *l, size_t slot);

/* Starts what is queued, and runs until something happens, for `ms` at most. */
void list_watch_loop_run(struct list_watch_loop *l, int64_t ms);
/* Runs the loop in a thread. `name` is a static string of at most 15 bytes. */
void list_watch_loop_thread(struct list_watch_loop *l, const char *name);
/* Joins the thread, if there is one, and cancels all requests. NULL is accepted. */
void list_watch_loop_stop(struct list_watch_loop *l);
