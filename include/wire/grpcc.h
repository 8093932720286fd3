/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/grpc.h"

/*
 * A gRPC client for unix sockets, on nghttp2. A call blocks the calling thread and opens
 * a connection of its own: that costs less than 0.1 ms, and a restarted kubelet needs no
 * special handling. Nothing is retried.
 *
 * A failure has a `status`, which distinguishes UNIMPLEMENTED from UNAVAILABLE, and an
 * `err` with a message and a code: grpc_status_err of the status, or ERR_TOO_LARGE if the
 * response exceeds max_message. Without a response from gRPC, the status is
 * - UNAVAILABLE: no socket, no listener, or the connection was closed;
 * - DEADLINE_EXCEEDED: timeout_ms has passed;
 * - UNKNOWN: an HTTP response without a gRPC status;
 * - INTERNAL: the response violates the protocol.
 */

struct grpcc_request {
    const char *socket;  /* path */
    const char *method;  /* "/v1.PodResourcesLister/List" */
    struct span message; /* copied */
    int64_t timeout_ms;  /* of the whole call, sent as grpc-timeout; 0: none */
    size_t max_message;  /* bytes of a response message; 0: 4 MiB */
};

/* A unary call: appends the response message to *reply. `status` may be NULL. */
int grpcc_call(const struct grpcc_request *req, struct buf *reply,
               enum grpc_status *status, struct err *err);

/* A server-streaming call. A stream is used by one thread at a time. */
struct grpcc_stream;
enum grpcc_next {
    GRPCC_MESSAGE, /* a message was appended */
    GRPCC_TIMEOUT, /* no message within wait_ms */
    GRPCC_END,     /* the stream has ended with OK */
    GRPCC_FAILED,  /* the stream has failed, see status and err */
};

/* New. Fails only if it cannot connect. */
struct grpcc_stream *grpcc_open(const struct grpcc_request *req, enum grpc_status *status,
                                struct err *err);
enum grpcc_next grpcc_next(struct grpcc_stream *s, int64_t wait_ms, struct buf *message,
                           enum grpc_status *status, struct err *err);
/* Cancels the call if it has not ended, and frees it. NULL is accepted. */
void grpcc_close(struct grpcc_stream *s);
