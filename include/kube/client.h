/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "kube/config.h"
#include "wire/httpc.h"

/*
 * Calls to the Kubernetes API server. One client is shared by all threads.
 *
 * The client adds credentials, and gets new ones when they are old or when the server
 * says 401: then the call is repeated once, because a 401 has changed nothing, if there
 * are credentials that can change (a token file, a plugin, a certificate file). It does
 * not repeat anything else: who asked knows whether that is safe.
 *
 * The authorities and the client certificate are looked after as the token is. When they
 * have changed, calls that begin get new connections; calls and streams that run go on
 * with the old ones.
 */

struct kube_client;

struct kube_request {
    const char *method;
    const char *path;         /* "/api/v1/namespaces/default/pods/p1?..." */
    const char *content_type; /* NULL: application/json */
    struct span body;
    bool gzip;
    int64_t timeout_ms, tcp_user_timeout_ms, stall_ms; /* as in wire/httpc.h */
    struct clock_deadline send_by;
};

enum { KUBE_MAX_BODY = 64 << 20 }; /* of an answer to kube_call */

/* New. Takes over nothing: `config` is copied. Does not connect, and runs no plugin. Make
 * it before other threads are started: it initialises libcurl and jansson. */
struct kube_client *kube_client_new(const struct kube_config *config, struct err *err);
void kube_client_free(struct kube_client *c); /* no call may run; streams may */

/* As httpc_call. A status of 400 and above is an answer, not an error: see
 * kube_reply_check. When no credentials can be had it fails with what
 * kube_credential_get says, not sent. timeout_ms holds for both attempts together, but
 * not for a credential plugin that has to be run first: send_by does. */
int kube_call(struct kube_client *c, const struct kube_request *req,
              struct httpc_reply *reply, struct err *err);

/* 0 for 2xx. Otherwise -1, with the code for the status and the message of the Status
 * object in the body; when it is none, the first bytes of what it is.
 * 400 and 422 are INVALID, 401 UNAUTHORIZED, 403 FORBIDDEN, 404 NOT_FOUND, 409 CONFLICT,
 * 410 GONE, 413 TOO_LARGE, 429 and 503 UNAVAILABLE, 408 and 504 TIMEOUT, other 4xx
 * INVALID, all else INTERNAL. */
int kube_reply_check(unsigned status, struct span body, struct err *err);

/* A list or watch on a loop. Begins with fresh credentials; as httpc_stream_start, NULL
 * when no credentials could be had. */
struct httpc_stream *kube_stream_start(struct kube_client *c, struct httpc_loop *loop,
                                       const struct kube_request *req,
                                       const struct httpc_sink *sink, void *ctx,
                                       struct err *err);
/* To be told of a 401 that came on a stream: the next call gets new credentials. */
void kube_client_unauthorized(struct kube_client *c);
