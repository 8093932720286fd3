/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * An HTTP client on libcurl, for one server.
 *
 * Calls block in the calling thread, on easy handles from a pool, so that connections and
 * TLS sessions are reused. Streams (long lists, watches) run on a loop, one curl multi that
 * belongs to one thread. Nothing is ever repeated behind the caller's back: a request that
 * was written once is not written again on another connection, because a Binding that is
 * applied twice cannot be told from one that is applied late.
 *
 * curl_global_init is done by httpc_new (once per process).
 */

struct httpc;

struct httpc_config {
    const char *url;         /* "https://host:port", no path; copied like all of these */
    struct span ca_pem;      /* empty: the system's authorities */
    struct span cert_pem, key_pem; /* client certificate, or empty */
    const char *server_name; /* to check the certificate against, instead of the host */
    const char *proxy;       /* NULL: none, whatever the environment says */
    bool insecure;           /* do not check the server's certificate */
    const char *user_agent;
    int64_t connect_ms;      /* for TCP and TLS together */
};

struct httpc *httpc_new(const struct httpc_config *config, struct err *err);
void httpc_free(struct httpc *c); /* no call and no loop may be using it */

struct httpc_request {
    const char *method;
    const char *path;          /* from '/', with the query */
    const char *authorization; /* header value, or NULL; never logged */
    const char *accept;        /* NULL: application/json */
    const char *content_type;  /* of the body */
    struct span body;
    bool gzip;                 /* accept a compressed answer */
    int64_t timeout_ms;        /* of the whole call; streams: 0, see below */
    int64_t delivery_ms;       /* > 0: the kernel gives the connection up when bytes stay
                                  unacknowledged for so long (TCP_USER_TIMEOUT), and a
                                  connection that is given up is reset, not closed */
    int64_t send_by_ms;        /* > 0, clock_mono_ms: do not start sending after this */
    int64_t stall_ms;          /* streams: give up after so long without a byte */
};

struct httpc_reply {
    unsigned status;       /* 0: no answer */
    struct buf body;
    int64_t retry_after_s; /* from Retry-After in seconds, or -1 */
    bool sent;             /* bytes of the request may have left */
};
void httpc_reply_fini(struct httpc_reply *r);

/* 0: there is an answer, of whatever status. -1: there is none (ERR_TIMEOUT or
 * ERR_UNAVAILABLE); reply->sent tells whether the server may have got the request. The
 * body is cut off with ERR_TOO_LARGE at `max_body`. */
int httpc_call(struct httpc *c, const struct httpc_request *req, size_t max_body,
               struct httpc_reply *reply, struct err *err);

/* Streams. All functions but httpc_loop_wake belong to one thread. */
struct httpc_loop;
struct httpc_stream;

struct httpc_sink {
    /* The status line and headers are there. Answers whether to go on. */
    bool (*begin)(void *ctx, unsigned status, int64_t retry_after_s);
    /* A piece of the body, decompressed; any status. Answers whether to go on. */
    bool (*data)(void *ctx, const char *p, size_t n);
    /* Always called once, last; `why` is NULL when the body ended as announced. The
     * stream is freed after it. */
    void (*end)(void *ctx, const struct err *why);
};

struct httpc_loop *httpc_loop_new(void);
void httpc_loop_free(struct httpc_loop *loop); /* cancels what runs (without `end`) */
/* `c`, `sink` and `ctx` are borrowed until `end`; the request is copied. */
struct httpc_stream *httpc_stream_start(struct httpc_loop *loop, struct httpc *c,
                                        const struct httpc_request *req,
                                        const struct httpc_sink *sink, void *ctx);
void httpc_stream_cancel(struct httpc_stream *s); /* without `end`; not from a sink */
/* Moves all streams on; returns when something happened, after `wait_ms`, or when woken. */
void httpc_loop_run(struct httpc_loop *loop, int64_t wait_ms);
void httpc_loop_wake(struct httpc_loop *loop); /* from any thread */
