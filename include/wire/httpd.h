/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * An HTTP/1.1 server on libmicrohttpd: several listeners, each with its own mode, routes,
 * limits and TLS.
 *
 * Handlers get a complete request (the body is read, counted and bounded before) and fill
 * a reply. A path that no route has is 404, a path with another method is 405 with Allow.
 * The limits that protect the process are kept here: connections, body size, bytes of all
 * bodies together, time until a request is complete, idle time.
 *
 * A request that cannot be told from an attack is refused before any handler sees it, and
 * its connection is closed: two lengths, a length beside chunks, an unknown coding or
 * expectation, a malformed target or header. A route for GET answers HEAD too.
 *
 * The signals of the process stay with the threads that the program has made: those made
 * here block them all, and so does a child that a handler starts, unless it resets its
 * mask.
 */

struct httpd;
struct tls; /* wire/tls.h */

enum httpd_mode {
    HTTPD_THREADS, /* a thread per connection; a handler may block */
    HTTPD_EVENTS,  /* few threads on epoll; a handler must not block; streams sleep */
};

struct httpd_request {
    const char *method;      /* "GET" */
    const char *path;        /* from '/', without the query; percent-escapes decoded */
    const char *query;       /* the raw query string behind '?', "" if none */
    struct span body;        /* valid until the handler returns */
    struct httpd_conn *peer; /* for httpd_param and httpd_header */
};

/* The value of a query parameter (decoded) or header; borrowed until the handler returns;
 * NULL if absent, "" if it has no value. Header names compare without case. */
const char *httpd_param(const struct httpd_request *req, const char *name);
const char *httpd_header(const struct httpd_request *req, const char *name);
/* Whose certificate the client has: the name in it, if it is of the listener's
 * authorities and one of its names. Else NULL. Borrowed until the handler returns. */
const char *httpd_client_name(const struct httpd_request *req);
/* The same of a certificate of its guests' authorities. */
const char *httpd_secondary_client_name(const struct httpd_request *req);

/* A body that is produced bit by bit, such as a watch. */
enum httpd_stream_result {
    HTTPD_STREAM_MORE,  /* something was appended; ask again when it has been sent */
    HTTPD_STREAM_WAIT,  /* nothing there; ask again after httpd_wake, at latest after a
                           second */
    HTTPD_STREAM_END,   /* the body ends here, after what was appended */
    HTTPD_STREAM_ABORT, /* the same, but break the connection off, as a failing server
                  would (which an HTTP/1.0 client cannot tell from the end) */
};

struct httpd_waker; /* wakes one sleeping stream; valid from `open` until `close` */

/* All three are called by one thread at a time, with nothing locked. */
struct httpd_stream {
    /* Called once before the first fill. `waker` is borrowed. Never called when there is
     * nobody to read the body: a HEAD request, a client that has gone. */
    void (*open)(void *ctx, struct httpd_waker *waker);
    enum httpd_stream_result (*fill)(void *ctx, struct buf *out);
    /* Called exactly once, when the stream is over for any reason, opened or not: it has
     * ended, the client has gone (also: will send no more) or takes nothing, the server
     * drains or stops. Frees ctx. */
    void (*close)(void *ctx);
};

/* May be called from any thread, also when the stream is not asleep (then the next sleep
 * ends at once). Never blocks. Must not be called during or after `close`. */
void httpd_wake(struct httpd_waker *waker);

struct httpd_reply {
    unsigned status;                   /* preset to 200 */
    const char *content_type;          /* static; preset to "application/json" */
    struct buf body;                   /* preset empty; taken over by the server */
    const struct httpd_stream *stream; /* NULL, or what follows the body (chunked) */
    void *stream_ctx;
    const char *header[6][2]; /* further ones, static; fewer end with a NULL name */
    bool gzip;                /* body and stream are gzip: adds Content-Encoding */
    bool abort;               /* break the connection off instead of answering */
};

/* Replies with a JSON object {"error": message}. */
void httpd_fail(struct httpd_reply *reply, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

typedef void (*httpd_handler_fn)(void *ctx, const struct httpd_request *req,
                                 struct httpd_reply *reply);

struct httpd_route {
    const char *method; /* NULL: any method, and no 405 */
    const char *path;   /* exact; with a '*' at its end, a prefix */
    httpd_handler_fn handler;
};

/* 0 takes the value in brackets. */
struct httpd_limits {
    size_t max_bodies;        /* bytes of all request bodies together; above: 503
                                 [256 MiB] */
    int64_t first_request_ms; /* from the accept until the first request is complete, and
                                 from the request line of a later one until that is
                                 complete, however busy the client is [10 s] */
    int64_t idle_ms;          /* keep-alive: until the next request line is there; also
                                 how long a client may take nothing of a reply before it
                                 is cut off (at most twice that) [120 s] */
};

struct httpd_listener_config {
    const char *name;    /* for logs: "verbs" */
    const char *address; /* IP address, v4 or v6 */
    unsigned port;       /* 0: a free one */
    enum httpd_mode mode;
    unsigned threads;     /* HTTPD_EVENTS: size of the pool; 0: 1 */
    bool sched_batch;     /* its threads take the processor from no other when they wake
                         (SCHED_BATCH); for HTTPD_EVENTS */
    unsigned connections; /* at most; more wait in the backlog; 0: 1024 */
    size_t max_body;      /* larger: 413; 0: no bodies */
    const char *cert_pem, *key_pem; /* both NULL: plain HTTP; else PEM text, copied */
    struct tls *tls; /* instead of these: a certificate that is replaced while the server
                        runs, and clients that are asked for theirs. Who is not let in
                        ends in the handshake, or gets a 403 when it is for the name.
                        Borrowed */
    /* Asked before each handler; false: what it has replied is the answer. NULL: all are
     * let in. */
    bool (*authorize)(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply);
    const struct httpd_route *routes; /* ends with a NULL handler; borrowed */
    void *ctx;                        /* borrowed; for the handlers */
};

/* New. `limits` is copied; NULL: all the defaults. */
struct httpd *httpd_new(const struct httpd_limits *limits);
/* Starts to listen; *port (may be NULL) gets the port. Not during or after a drain. */
int httpd_listen(struct httpd *d, const struct httpd_listener_config *listener,
                 unsigned *port, struct err *err);
/* Graceful end, first half: no new connections; every reply closes its connection; idle
 * connections are closed; streams are ended, cleanly. Waits until no request is in flight
 * and no connection is left, at most `timeout_ms`. Returns whether no request was left.
 * Not from a handler. */
bool httpd_drain(struct httpd *d, int64_t timeout_ms);
/* Second half, also without the first: cuts the connections and joins the threads. It
 * waits for handlers that are running; their replies are not sent. NULL is accepted. */
void httpd_free(struct httpd *d);

struct httpd_stats {
    unsigned connections; /* now */
    unsigned in_flight;  /* now: requests from their first line to the end of the reply */
    uint64_t body_bytes; /* held now, all bodies; until their handlers return */
    uint64_t timed_out;  /* connections whose deadline passed, since the start */
};
void httpd_stats(struct httpd *d, struct httpd_stats *stats);
