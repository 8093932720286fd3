/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/grpc.h"

/*
 * A gRPC server on a unix socket, on nghttp2: unary and server-streaming calls. The
 * server does not interpret messages; handlers decode and encode them.
 *
 * The server has one thread, which also runs the handlers; a handler must not block. It
 * gets a handle of the call and responds at once or later, from any thread.
 *
 * Only peers that run as root or as the user of this process are served. Beyond that a
 * peer is trusted: a request has a largest size and must be complete within ten seconds;
 * a connection whose client reads nothing of its output for 30 seconds is closed. A
 * client's grpc-timeout is ignored, because the client cancels such a call itself.
 *
 * The :authority of a request may be any printable text: kubelets before 1.26 send the
 * path of the socket, which HTTP/2 does not allow. Messages are never compressed;
 * compressed requests are rejected with UNIMPLEMENTED.
 */

struct grpcd;
struct grpcd_call;

struct grpcd_method {
    const char *path; /* "/v1beta1.DevicePlugin/Allocate"; NULL ends a table */
    /* Handles a complete request; its bytes are borrowed until `start` returns. The
     * handler owns the handle until it ends the call, which it must do exactly once, also
     * if the client has disconnected. */
    void (*start)(void *ctx, struct grpcd_call *call, struct span request);
    /* The call is cancelled: the client has cancelled or disconnected, or the server
     * stops. NULL: not needed. Called at most once, on the server's thread or in
     * grpcd_free, after `start` has returned, and only for calls that have not ended; the
     * call must still be ended. If another thread ends the call at the same time, `call`
     * remains valid until on_cancel returns. */
    void (*on_cancel)(void *ctx, struct grpcd_call *call);
};

struct grpcd_config {
    const char *path;                   /* of the socket, at most 107 bytes; copied */
    const struct grpcd_method *methods; /* borrowed, like ctx, until grpcd_free */
    void *ctx;                          /* for the handlers */
    size_t max_message; /* bytes; larger requests get RESOURCE_EXHAUSTED; 0: 4 MiB */
};

/* Creates the socket, with mode 0600, and starts the server. Replaces a socket at the path
 * that has no listener. ERR_CONFLICT: the socket has a listener, or the file is not a
 * socket. ERR_INVALID: invalid path. ERR_UNAVAILABLE: any other failure. */
struct grpcd *grpcd_start(const struct grpcd_config *config, struct err *err);
/* Whether the path still names this server's socket: the kubelet removes the sockets of
 * device plugins when it starts. From any thread. */
bool grpcd_is_reachable(const struct grpcd *d);
/* Sends what calls have posted, as far as the clients take it at once, closes all
 * connections, cancels the calls that have not ended, removes the socket if it is still
 * ours, and joins the thread. Handles stay valid until their calls are ended. NULL is
 * accepted. */
void grpcd_free(struct grpcd *d);

/* Calls. From any thread; none of these functions blocks. */

/* Sends a message of a server-streaming call. The queue holds one message: a newer one
 * replaces it. Takes the bytes and leaves *message empty. */
void grpcd_send(struct grpcd_call *call, struct buf *message);
/* Sends the message, whose bytes it takes, and ends the call with OK. Invalidates the
 * handle. */
void grpcd_reply(struct grpcd_call *call, struct buf *message);
/* Ends the call, after its queued message. The client gets the status and at most 512
 * bytes of the text; GRPC_OK has no text. Invalidates the handle. */
void grpcd_end(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
