/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/grpc.h"

/*
 * A gRPC client for unix sockets, on nghttp2: unary calls. A call blocks the calling
 * thread and opens a connection of its own: that costs less than 0.1 ms, and a restarted
 * kubelet needs no special handling. Nothing is retried.
 *
 * A failure has a `status`, which distinguishes UNIMPLEMENTED from UNAVAILABLE, and an
 * `err` with a message and a code. Without a response from gRPC, the status is
 * - UNAVAILABLE: no socket, no listener, or the connection was closed;
 * - DEADLINE_EXCEEDED: timeout_ms has passed;
 * - UNKNOWN: an HTTP response without a gRPC status;
 * - INTERNAL: the response violates the protocol.
 */

struct grpcc_request {
    const char *socket; /* path */
    const char *method; /* "/v1.PodResourcesLister/List" */
    struct span message;
    int64_t timeout_ms; /* of the whole call; > 0 */
    size_t max_message; /* bytes of the response message; 0: 4 MiB */
};

/* Appends the response message to *reply. `status` may be NULL. ERR_INVALID: the path of
 * the socket. ERR_TOO_LARGE: the response exceeds max_message. ERR_TIMEOUT: timeout_ms has
 * passed. ERR_UNAVAILABLE: any other failure. */
int grpcc_call(const struct grpcc_request *req, struct buf *reply,
               enum grpc_status *status, struct err *err);
