/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "base/str.h"
#include "wire/tls.h"

/*
 * An HTTP/1.1 server on libmicrohttpd with several listeners, each with its own mode,
 * routes, limits and TLS configuration.
 *
 * A handler gets a complete request, with its body in memory, and fills a reply. A path
 * without a route is 404; a path with another method is 405 with Allow. A route for GET
 * serves HEAD, too. The server enforces the limits that protect the process: connections,
 * size of a body, bytes of all bodies together, time to complete a request, idle time.
 *
 * A full listener still accepts: a new connection replaces the one that has been idle,
 * incomplete, deferred or unread the longest, or else a stream that waits for data. A
 * connection whose handler runs is never closed, and one of a trusted client only if no
 * other is left. A new connection
 * has a fraction of a second for its request, so that a storm of others does not close it
 * before. Trusted is a client with a verified certificate, or one for which `authorize` has
 * called httpd_trust.
 *
 * With HTTPD_THREADS, requests beyond `handlers` wait for a free one. A listener that is
 * full of them answers the longest-waiting with 503, so that a probe always gets in. A
 * handler that waits for other requests can hold its own (httpd_hold), so that they run
 * meanwhile. Running and held requests take at most seven eighths of the connections.
 *
 * The bytes of bodies are counted as they are received. If they reach their limit, the
 * connection with the largest incomplete body is closed in favor of a smaller one; without
 * a larger one, a request gets 503.
 *
 * Requests that could be smuggled past a proxy are rejected with 400 before any handler
 * runs, and their connection is closed: two lengths, a length with chunks, an unknown
 * transfer coding or expectation, a malformed target or header.
 *
 * The server's threads block the signals that the thread which starts a listener blocks.
 */

struct httpd;

enum httpd_mode {
    HTTPD_THREADS, /* a thread per connection; a handler may block */
    HTTPD_EVENTS,  /* one thread on epoll; handlers must not block; for many streams */
};

struct httpd_request {
    const char *method;      /* "GET" */
    const char *path;        /* from '/', without the query; percent-decoded */
    const char *query;       /* the raw query string after '?', "" if none */
    struct span body;        /* valid until the handler returns */
    struct httpd_conn *conn; /* for httpd_header and the like */
};

/* Whether the query has watch=true. */
bool httpd_is_watch(const struct httpd_request *req);
/* The value of a header; borrowed until the handler returns; NULL if absent, "" if it has
 * no value. Names are case-insensitive. */
const char *httpd_header(const struct httpd_request *req, const char *name);
/* The name in the client's certificate, if authorities of the group verify it and the group
 * allows it; else NULL. Borrowed until the handler returns. */
const char *httpd_client_name(const struct httpd_request *req, enum tls_group group);
/* Marks the connection as that of a trusted client, for its lifetime. To be called by
 * `authorize` after it has verified credentials that are not a certificate. */
void httpd_trust(const struct httpd_request *req);

/* HTTPD_THREADS, in a handler that is not that of a probe: gives the handler's place among
 * `handlers` to the next request, once. The connection stays, counts among the connections of
 * the listener, and is never closed in favor of another. A drain and a stop wait for it as for
 * a running handler. */
void httpd_hold(const struct httpd_request *req);
/* In a handler, held or not: whether nobody can get the reply. The client has closed the
 * connection or its sending side, with plain HTTP or TLS, or has reset it; or httpd_free was
 * called. One system call, which does not block. */
bool httpd_client_gone(const struct httpd_request *req);

/* A streamed body, such as a watch. `fill` returns: */
enum httpd_stream_result {
    HTTPD_STREAM_MORE,  /* appended data; call fill again when it is sent. No data: call
                           fill again soon, after other connections had their turn */
    HTTPD_STREAM_WAIT,  /* call fill again after httpd_stream_wake, or else after a
                           second */
    HTTPD_STREAM_END,   /* the body ends after the appended data */
    HTTPD_STREAM_ABORT, /* send the appended data, then close the connection without
                           ending the body (an HTTP/1.0 client cannot see the difference)
                         */
};

struct httpd_open_stream; /* one stream in the server; valid from the first `fill` until
                             `close` */

/* The callbacks of one stream never run concurrently, and no lock is held. */
struct httpd_stream {
    /* Not called if the body is not needed: a HEAD request, or the client has
     * disconnected. */
    enum httpd_stream_result (*fill)(void *ctx, struct httpd_open_stream *stream,
                                     struct buf *out);
    /* Called exactly once, also if `fill` was not: the body has ended, the client has
     * disconnected, closed its sending side or stopped reading, or the server drains or
     * stops. Frees ctx. */
    void (*close)(void *ctx);
};

/* Ends the stream's wait, or its next one if it does not wait now. From any thread, but
 * not during or after `close`. Never blocks. */
void httpd_stream_wake(struct httpd_open_stream *stream);

struct httpd_reply {
    unsigned status;                   /* initially 200 */
    const char *content_type;          /* static; initially "application/json" */
    struct buf body;                   /* initially empty; the server takes it */
    const struct httpd_stream *stream; /* what follows the body (chunked), or NULL */
    void *stream_ctx;
    bool stream_finite;    /* the stream ends by itself: a drain waits for that */
    struct span fixed;     /* instead of body: bytes that are valid forever */
    struct budget *budget; /* gets `charged` back when the body is sent or dropped;
                                  not with a stream, whose `close` does that. NULL: none */
    uint64_t charged;
    const char *header[6][2]; /* of httpd_add_header; a NULL name ends them */
    bool gzip;                /* body and stream are gzip: adds Content-Encoding */
    bool abort;               /* close the connection without a response */
};

/* Adds a header, at most six. The strings are borrowed until the reply is sent. */
void httpd_add_header(struct httpd_reply *reply, const char *name, const char *value);
/* Fills the reply with the status and a JSON object {"error": message}; 503 may be tried again
 * after a second. */
void httpd_fail(struct httpd_reply *reply, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

typedef void (*httpd_handler_fn)(void *ctx, const struct httpd_request *req,
                                 struct httpd_reply *reply);
/* The handler of /version: {"version": GPUSHARE_VERSION}. */
void httpd_version(void *ctx, const struct httpd_request *req, struct httpd_reply *reply);

/* Lets the request wait; only in httpd_listener_config.authorize, whose reply is then
 * dropped. After httpd_resume, authorize is called again. No thread of the server
 * blocks under HTTPD_EVENTS. The request waits without a deadline, also if its client
 * disconnects, but a full listener may close its connection. */
struct httpd_deferred;
struct httpd_deferred *httpd_defer(const struct httpd_request *req);
/* To be called exactly once for each httpd_defer, from any thread, also after httpd_free.
 * Never blocks; frees `w`. */
void httpd_resume(struct httpd_deferred *w);

struct httpd_route {
    const char *method; /* NULL: any method, and no 405 */
    const char *path;   /* exact, or a prefix that ends with '*' */
    httpd_handler_fn handler;
};

/* 0 selects the default in brackets. */
struct httpd_limits {
    size_t max_bodies;        /* bytes of all request bodies in memory; beyond: 503
                                 [256 MiB]; a GET has at most 4 KiB */
    int64_t first_request_ms; /* from accept until the first request is complete, and from
                                 each later request line until that request is [10 s] */
    int64_t idle_ms; /* keep-alive timeout [120 s]. A client that reads nothing of
                                 a reply is disconnected after at most twice the shorter of
                                 these two times */
};

struct httpd_listener_config {
    const char *name;    /* for logs: "verbs" */
    const char *address; /* IPv4 or IPv6 address; "::" is the wildcard of both, or of
                            IPv4 where the kernel has no IPv6 */
    unsigned port;       /* 0: a free port */
    enum httpd_mode mode;
    /* Its threads yield to others: they run under SCHED_BATCH, so that their wakeups do not
     * preempt. HTTPD_THREADS: from its first request on, the thread of a trusted client is
     * scheduled like any other, and that of another client has a higher nice value. */
    bool yields;
    unsigned connections; /* at most, and a quarter of the descriptors; 0: 1024 */
    /* HTTPD_THREADS: handlers that run at once, without held ones; a quarter is reserved for
     * trusted clients. 0: seven eighths of the connections. */
    unsigned handlers;
    /* HTTPD_THREADS: paths of `routes` whose handlers do not block; they run even if
     * `handlers` others do. Ends with NULL; borrowed. NULL: none. */
    const char *const *probes;
    size_t max_body; /* bytes; larger bodies get 413; 0: no bodies */
    /* The certificate, and the verification of client certificates; NULL: plain HTTP. Every
     * client completes the handshake; `authorize` and the
     * handlers decide what it may do. Borrowed. */
    struct tls *tls;
    /* Called for each request for a known route, and once more for a request that
     * waited; with a thread per connection when the header is complete, before the body
     * is read. req->body is empty. False: the reply that it filled is sent (or, after
     * httpd_defer, the request waits), and the handler is not called. NULL: every request
     * is allowed. */
    bool (*authorize)(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply);
    void *authorize_ctx;              /* for authorize; borrowed */
    const struct httpd_route *routes; /* ends with a NULL handler; borrowed */
    void *ctx;                        /* for the handlers; borrowed */
};

/* New. `limits` is copied; NULL: the defaults. */
struct httpd *httpd_new(const struct httpd_limits *limits);
/* Starts a listener; *port (may be NULL) is set to its port. Not during or after a drain.
 * ERR_INVALID: address or port. ERR_UNAVAILABLE: any other failure. */
int httpd_listen(struct httpd *d, const struct httpd_listener_config *config,
                 unsigned *port, struct err *err);
/* Graceful stop: accepts no new connections; closes idle connections, and the others with
 * their next reply; ends streams. Waits until no request is in flight and no connection
 * is left, at most `timeout_ms`. Returns whether no request is in flight. Not from a
 * handler. */
bool httpd_drain(struct httpd *d, int64_t timeout_ms);
/* Closes all connections and joins the threads, also without an httpd_drain before. Waits
 * for running handlers; their replies are not sent. NULL is accepted. */
void httpd_free(struct httpd *d);

/* Appends the metrics gpushare_http_*. */
void httpd_metrics(struct httpd *d, struct buf *out);
