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
 * Calls block the calling thread. They use a pool of easy handles, so that connections
 * and TLS sessions are reused. Streams (long lists, watches) run on a loop, a curl multi
 * handle that belongs to one thread. A redirect is an error. No cookies, no proxy except a
 * configured one, TLS 1.2 or newer.
 *
 * A request that was written is never sent again on another connection, because the
 * server may have applied it: a Binding that is applied twice cannot be distinguished
 * from one that is applied late. (libcurl's own retry on a dead connection is disabled.)
 * Exception: GET and HEAD are retried once if a reused connection is closed before the
 * first byte of a response.
 *
 * The first httpc_new or httpc_loop_new of the process calls curl_global_init, and
 * ignores SIGPIPE if it has its default action: otherwise, writing to a TLS connection
 * that the peer has closed would terminate the process.
 */

struct httpc;

struct httpc_config {
    const char *url;    /* "https://host:port", no path; all fields are copied */
    struct span ca_pem; /* the only trusted CAs; empty: those of the system */
    struct span cert_pem, key_pem; /* client certificate, or empty */
    const char *server_name; /* https: name for SNI and certificate verification; NULL:
                                the host of the URL */
    const char *proxy;       /* NULL: none; the environment is ignored */
    const char *unix_socket; /* path; NULL: the connection is TCP */
    bool insecure;           /* skip the verification of the server's certificate */
    const char *user_agent;
    int64_t connect_ms; /* timeout of TCP connect and TLS handshake together; 0: 300 s */
    size_t idle_max;    /* idle connections that the pool keeps; 0: 128 */
    int64_t idle_ms;    /* how long the pool keeps an idle connection; 0: 120 s */
};

/* New, with one reference. */
struct httpc *httpc_new(const struct httpc_config *config, struct err *err);
/* Adds a reference, to be released with httpc_free. A call needs a reference until it
 * returns; a stream holds one of its own. Returns c. */
struct httpc *httpc_ref(struct httpc *c);
void httpc_free(struct httpc *c); /* the last reference closes the connections */
/* Closes connections that were idle for longer than idle_ms. Calls do that too, but after
 * the last call its connections stay open. */
void httpc_close_idle(struct httpc *c);

struct httpc_request {
    const char *method;
    const char *path;          /* from '/', with the query, escaped: no space, no '#' */
    const char *authorization; /* header value, or NULL; never logged */
    const char *content_type;  /* of the body */
    const char *flag_header; /* name of an extra header, sent with the value 1; or NULL */
    struct span body;
    bool gzip;          /* accept a compressed response */
    int64_t timeout_ms; /* of the whole call, or stream; 0: none */
    /* > 0: TCP_USER_TIMEOUT. The kernel resets the connection if bytes stay
     * unacknowledged for this time, so that no queued byte is delivered later. Calls
     * only; they use connections of their own. */
    int64_t tcp_user_timeout_ms;
    /* Calls only; NULL: none. Asked about once a second, and more often while bytes arrive.
     * True gives the call up, and its connection is closed. Must not block. */
    bool (*gone)(void *gone_ctx);
    void *gone_ctx;
    struct clock_deadline send_by; /* do not start sending after this time; checked after
                                      the TLS handshake */
    int64_t stall_ms;              /* streams: fail after this time without a byte */
};

struct httpc_reply {
    unsigned status; /* 0: no response */
    struct buf body;
    int64_t retry_after_s; /* from Retry-After in seconds, or -1 */
    bool sent;             /* false: no byte of the request was written */
};
void httpc_reply_fini(struct httpc_reply *r);
#define cleanup_reply __attribute__((cleanup(httpc_reply_fini)))

/* Fills *reply, which may be uninitialized; release with httpc_reply_fini.
 * 0: the server responded, with any status.
 * -1: no response; the code of the error gives the reason:
 * - ERR_TIMEOUT: sent, but no complete response within timeout_ms;
 * - ERR_UNAVAILABLE: not sent (no connection, TLS failed, send_by passed), or the
 *   connection was closed before the response was complete, or `gone`: see reply->sent;
 * - ERR_TOO_LARGE: the decompressed body is larger than `max_body`; the status and the
 *   first `max_body` bytes are in the reply;
 * - ERR_INVALID: path or credentials are malformed. */
int httpc_call(struct httpc *c, const struct httpc_request *req, size_t max_body,
               struct httpc_reply *reply, struct err *err);

/* Streams. All functions but httpc_loop_wake belong to one thread. */
struct httpc_loop;
struct httpc_stream;

struct httpc_sink {
    /* Status and headers have arrived (not those of 1xx). retry_after_s: -1 if absent.
     * date_s: the Date header, the server's clock, in seconds since 1970; 0 if absent.
     * False stops the stream. */
    bool (*begin)(void *ctx, unsigned status, int64_t retry_after_s, int64_t date_s);
    /* A piece of the body, decompressed; any status. False stops the stream. */
    bool (*data)(void *ctx, const char *p, size_t n);
    /* Called exactly once, last; `why` is NULL if the body is complete. Codes as for
     * httpc_call; ERR_TIMEOUT also if stall_ms passed; ERR_INVALID also if begin or data
     * returned false. The stream is freed when `end` returns. */
    void (*end)(void *ctx, const struct err *why);
};

struct httpc_loop *httpc_loop_new(void);
void httpc_loop_free(struct httpc_loop *loop); /* cancels its streams, without `end` */
/* Starts a stream. `sink` and `ctx` are borrowed until `end`; the request is copied.
 * Never NULL: a later httpc_loop_run reports errors to `end`. May be called from a sink.
 */
struct httpc_stream *httpc_stream_start(struct httpc_loop *loop, struct httpc *c,
                                        const struct httpc_request *req,
                                        const struct httpc_sink *sink, void *ctx);
/* Cancels and frees the stream without calling `end`. Not from `begin` or `data`; from
 * `end` only for other streams. */
void httpc_stream_cancel(struct httpc_stream *s);
/* Runs all streams. Returns after calls to sinks, after `wait_ms`, or on
 * httpc_loop_wake. */
void httpc_loop_run(struct httpc_loop *loop, int64_t wait_ms);
void httpc_loop_wake(struct httpc_loop *loop); /* from any thread */
