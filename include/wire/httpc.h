/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

/*
 * An HTTP/1.1 client on libcurl, for one server.
 *
 * Calls block in the calling thread, on easy handles from a pool, so that connections and
 * TLS sessions are reused. Streams (long lists, watches) run on a loop, one curl multi
 * that belongs to one thread. No redirects, no cookies, no proxy but the one that is
 * named, TLS 1.2 or newer.
 *
 * Nothing is repeated behind the caller's back: a request that was written once is not
 * written again on another connection, because a Binding that is applied twice cannot be
 * told from one that is applied late. (libcurl does that by itself when a kept connection
 * turns out to be dead; it is stopped from it.) The one exception is GET and HEAD, which
 * are asked once more when a kept connection was closed without a byte of an answer.
 *
 * The first httpc_new or httpc_loop_new of the process calls curl_global_init, and sets
 * SIGPIPE to be ignored if it had its default action: a TLS connection that the peer has
 * closed would end the process otherwise.
 */

struct httpc;

struct httpc_config {
    const char *url;    /* "https://host:port", no path; copied like all of these */
    struct span ca_pem; /* empty: the system's authorities; else only these */
    struct span cert_pem, key_pem; /* client certificate, or empty */
    const char *server_name; /* https: ask for the certificate of this name and check it
                                against this, instead of the host; NULL: the host */
    const char *proxy;       /* NULL: none, whatever the environment says */
    bool insecure;           /* do not check the server's certificate */
    const char *user_agent;
    int64_t connect_ms; /* for TCP and TLS together; 0: 300 s */
    /* Connections that calls leave open for the next ones: at most so many (0: 64), for
     * so long (0: 120 s). */
    size_t idle_max;
    int64_t idle_ms;
};

/* New. It has one user, its maker. */
struct httpc *httpc_new(const struct httpc_config *config, struct err *err);
/* Adds a user, who gives his share up with httpc_free. A call needs one for as long as it
 * lasts; a stream adds itself. Returns c. */
struct httpc *httpc_ref(struct httpc *c);
void httpc_free(struct httpc *c); /* the last user's call closes the connections */
/* Closes the connections that have been idle for too long. Without it, only calls do, so
 * that the last ones stay open until the next call. */
void httpc_close_idle(struct httpc *c);

struct httpc_request {
    const char *method;
    const char *path;          /* from '/', with the query, escaped: no space, no '#' */
    const char *authorization; /* header value, or NULL; never logged */
    const char *accept;        /* NULL: application/json */
    const char *content_type;  /* of the body */
    const char *flag_header;   /* a header of this name, with the value 1; or NULL */
    struct span body;
    bool gzip;                     /* accept a compressed answer */
    int64_t timeout_ms;            /* of the whole call, or stream; 0: none */
    int64_t tcp_user_timeout_ms;   /* > 0: the kernel gives the connection up when bytes
                              stay   unacknowledged for so long (TCP_USER_TIMEOUT), and a
                              connection that is given up is reset, not closed: what
                              it has not delivered by then it never will. Such calls
                              have connections of their own */
    struct clock_deadline send_by; /* do not start sending after this. It is looked at
                                      when the connection (and TLS) is there */
    int64_t stall_ms;              /* streams: give up after so long without a byte */
};

struct httpc_reply {
    unsigned status; /* 0: no answer */
    struct buf body;
    int64_t retry_after_s; /* from Retry-After in seconds, or -1 */
    bool sent;             /* bytes of the request may have left; false is certain */
};
void httpc_reply_fini(struct httpc_reply *r);

/* Fills *reply, which need not be initialised; release with httpc_reply_fini.
 * 0: there is an answer, of whatever status.
 * -1: there is none, and the code says why:
 * - ERR_TIMEOUT: sent, but no complete answer within timeout_ms;
 * - ERR_UNAVAILABLE: not sent (no connection, no TLS, send_by passed), or the
 *   connection broke before the answer was complete; reply->sent tells which;
 * - ERR_TOO_LARGE: the answer's body (decompressed) is larger than `max_body`; the status
 *   and the first `max_body` bytes are in the reply;
 * - ERR_INVALID: the request cannot be written down (a bad path, method or header). */
int httpc_call(struct httpc *c, const struct httpc_request *req, size_t max_body,
               struct httpc_reply *reply, struct err *err);

/* Streams. All functions but httpc_loop_wake belong to one thread. */
struct httpc_loop;
struct httpc_stream;

struct httpc_sink {
    /* Status and headers are there (not those of 1xx). Answers whether to go on. */
    bool (*begin)(void *ctx, unsigned status, int64_t retry_after_s);
    /* A piece of the body, decompressed; any status. Answers whether to go on. */
    bool (*data)(void *ctx, const char *p, size_t n);
    /* Always called once, last; `why` is NULL when the body ended as announced. Codes as
     * for httpc_call; ERR_TIMEOUT also when stall_ms passed; ERR_INVALID also when begin
     * or data answered false. The stream is freed after it. */
    void (*end)(void *ctx, const struct err *why);
};

struct httpc_loop *httpc_loop_new(void);
void httpc_loop_free(struct httpc_loop *loop); /* cancels what runs (without `end`) */
/* `sink` and `ctx` are borrowed until `end`; the request is copied. Never NULL: what is
 * wrong is told to `end`, by a later httpc_loop_run. May be called from a sink. */
struct httpc_stream *httpc_stream_start(struct httpc_loop *loop, struct httpc *c,
                                        const struct httpc_request *req,
                                        const struct httpc_sink *sink, void *ctx);
/* Without `end`. Not from `begin` or `data`; from `end` only for other streams. */
void httpc_stream_cancel(struct httpc_stream *s);
/* What its answer's Date says, in seconds since 1970, from `begin` on: the server's
 * clock. 0: it says nothing. */
int64_t httpc_stream_date_s(const struct httpc_stream *s);
/* Moves all streams on. Returns when something happened, after `wait_ms`, or when
 * woken. */
void httpc_loop_run(struct httpc_loop *loop, int64_t wait_ms);
void httpc_loop_wake(struct httpc_loop *loop); /* from any thread */
