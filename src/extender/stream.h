/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "base/budget.h"
#include "wire/httpd.h"

/*
 * Replies that are sent piece by piece: watches and lists, which read on while they are sent,
 * and large texts that many clients share. How many are open at a time is limited, because
 * a client that reads slowly holds one for long.
 */

/* A kind of streams. The main port has a lower limit, because each occupies a thread there. */
struct stream_kind {
    const char *what;     /* "watches" */
    unsigned most;        /* on both ports ... */
    unsigned main_most;   /* ... and on the main port */
    int64_t heartbeat_ms; /* interval of the empty lines of an idle watch; 0: none */
    atomic_uint open, main_open;
};

enum {
    STREAM_CHUNK = 16 * 1024, /* bytes written at a time, and buffered per slow client */
    STREAM_PAUSE_MS = 500,    /* a watch is read at most so often */
    STREAM_HEARTBEAT_MS = 15 * 1000,
};

/* From where a stream was asked for. */
struct stream_client {
    bool main;      /* on the main port */
    int64_t end_ms; /* when it must end (clock_mono_ms) */
};

/* A stream: the first member of what its reader needs. */
struct stream {
    /* Appends up to about STREAM_CHUNK bytes. HTTPD_STREAM_WAIT: there is no more now. */
    enum httpd_stream_result (*read)(void *stream, struct buf *out);
    void (*close)(void *stream); /* before it is released */
    struct stream_kind *kind;    /* these are private */
    struct stream_client client;
    int64_t next_ms, sent_ms;
};

/* Answers with a new stream of `size` bytes, zeroed behind struct stream. NULL: too many are
 * open, and the reply is a 503. */
void *stream_open(struct stream_kind *kind, const struct stream_client *client,
                  size_t size,
                  enum httpd_stream_result (*read)(void *stream, struct buf *out),
                  void (*close)(void *stream), struct httpd_reply *reply);

/* Makes the reply a 503 that may be asked for again in a second. */
void stream_refuse(struct httpd_reply *reply, const char *why);
/* Adds "Retry-After: 1" to a reply without headers. */
void stream_retry_after(struct httpd_reply *reply);

/*
 * A large text that many clients share: inspect, and the values of nodes and cards in
 * metrics. It is rendered once per state of the ledger; a reply is a reference to it.
 *
 * A client that does not read keeps a text in memory. So there are two at most: while both
 * are being read, a new client gets the newer one if it is less than STREAM_FRESH_MS old, else
 * the older one is given up: the connections of its readers are closed.
 */

enum { STREAM_FRESH_MS = 2000 };

struct stream_text;

/* New. `budget` is charged for the text; everything is borrowed. */
struct stream_text *stream_text_new(struct stream_kind *kind, struct budget *budget,
                                    void (*render)(void *ctx, struct buf *out),
                                    void *ctx);
/* No reply may be open. NULL is accepted. */
void stream_text_free(struct stream_text *t);
/* Answers with the text, after what reply->body has; or with 503. Renders it, unless there
 * is one of the same state: bytes that change whenever the text does. */
void stream_text_send(struct stream_text *t, struct span state,
                      const struct stream_client *client, struct httpd_reply *reply);
