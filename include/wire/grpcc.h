/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/grpc.h"

/*
 * A gRPC client for unix sockets, on nghttp2. It blocks in the calling thread and has a
 * fresh connection for every call (it costs less than a tenth of a millisecond, and a
 * kubelet that was restarted is found without further ado). Nothing is repeated.
 *
 * What goes wrong is told twice: `status` is for those who tell UNIMPLEMENTED from
 * UNAVAILABLE, `err` has words and a code (grpc_status_err of the status; ERR_TOO_LARGE
 * when it is our own limit that was passed). Without an answer:
 * - UNAVAILABLE: no socket, nobody listens, the connection broke;
 * - DEADLINE_EXCEEDED: timeout_ms has passed;
 * - of HTTP alone: 401 UNAUTHENTICATED, 403 PERMISSION_DENIED, 404 UNIMPLEMENTED, 429,
 * 502 to 504 UNAVAILABLE, 400 INTERNAL, anything else UNKNOWN;
 * - INTERNAL: it is not understood.
 */

struct grpcc_request {
    const char *socket;  /* path */
    const char *method;  /* "/v1.PodResourcesLister/List" */
    struct span message; /* copied */
    int64_t timeout_ms;  /* of all of it, and told to the server; 0: none */
    size_t max_message;  /* bytes of a message that comes back; 0: 4 MiB */
};

/* One message there, one back: appended to *reply. `status` may be NULL. */
int grpcc_call(const struct grpcc_request *req, struct buf *reply,
               enum grpc_status *status, struct err *err);

/* One message there, any number back. A stream belongs to one thread at a time. */
struct grpcc_stream;
enum grpcc_next {
    GRPCC_MESSAGE, /* one was appended */
    GRPCC_TIMEOUT, /* none came within wait_ms */
    GRPCC_END,     /* the stream has ended with OK */
    GRPCC_FAILED,  /* with something else, see status and err */
};

/* New. Fails only when there is no connection. */
struct grpcc_stream *grpcc_open(const struct grpcc_request *req, enum grpc_status *status,
                                struct err *err);
enum grpcc_next grpcc_next(struct grpcc_stream *s, int64_t wait_ms, struct buf *message,
                           enum grpc_status *status, struct err *err);
/* Cancels it if it has not ended. NULL is accepted. */
void grpcc_close(struct grpcc_stream *s);
