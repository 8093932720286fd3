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
 * peer is trusted: a message has a largest size, and every call and every write that the
 * client does not read has a deadline.
 *
 * The :authority of a request may be any printable text: kubelets before 1.26 send the
 * path of the socket, which HTTP/2 does not allow. Messages are never compressed;
 * compressed requests are rejected with UNIMPLEMENTED.
 */

struct grpcd;
struct grpcd_call;

struct grpcd_method {
    const char *path; /* "/v1beta1.DevicePlugin/Allocate"; NULL ends a table */
    bool stream;      /* server-streaming: grpcd_send may be called */
    /* Handles a complete request; its bytes are borrowed until `start` returns. The
     * handler owns the handle until it ends the call, which it must do exactly once, also
     * if the client has disconnected. */
    void (*start)(void *ctx, struct grpcd_call *call, struct span request);
    /* The call is cancelled: the client has cancelled or disconnected, its deadline has
     * passed, or the server stops. NULL: not needed. Called at most once, on the server's
     * thread, after `start` has returned, and only for calls that have not ended; the
     * call must still be ended. If another thread ends the call at the same time, `call`
     * remains valid until on_cancel returns. */
    void (*on_cancel)(void *ctx, struct grpcd_call *call);
};

struct grpcd_config {
    const char *path;                   /* of the socket, at most 107 bytes; copied */
    const struct grpcd_method *methods; /* borrowed, like ctx, until grpcd_free */
    void *ctx;                          /* for the handlers */
    /* 0 selects the default in brackets. */
    size_t max_message; /* bytes; larger requests get RESOURCE_EXHAUSTED [4 MiB] */
    int64_t request_ms; /* from the first byte of a call until its request is complete
                           [10 s] */
    int64_t stall_ms;   /* closes a connection whose client has read nothing of its output
                           for this time [30 s] */
};

/* Creates the socket (mode 0600, renamed into place once it listens) and starts the
 * server. Replaces a socket at the path that has no listener. ERR_CONFLICT: the socket
 * has a listener, or the file is not a socket. ERR_INVALID: invalid path.
 * ERR_UNAVAILABLE: any other failure. */
struct grpcd *grpcd_start(const struct grpcd_config *config, struct err *err);
/* Whether the path still names this server's socket: the kubelet removes the sockets of
 * device plugins when it starts. From any thread. */
bool grpcd_is_reachable(const struct grpcd *d);
/* Graceful stop: removes the socket if it is still ours, rejects new calls, ends streams
 * with UNAVAILABLE, and waits until the other calls have ended and all output is sent, at
 * most `timeout_ms`. Returns whether all of that is done. Not from a handler. */
bool grpcd_stop(struct grpcd *d, int64_t timeout_ms);
/* Closes all connections and joins the thread, also without a grpcd_stop before. Handles
 * stay valid until their calls are ended. NULL is accepted. */
void grpcd_free(struct grpcd *d);

/* Calls. From any thread; none of these functions blocks. */

/* Sends a message of a stream. The queue holds one message: a newer one replaces it.
 * Takes the bytes and leaves *message empty. */
void grpcd_send(struct grpcd_call *call, struct buf *message);
/* Sends the message, whose bytes it takes, and ends the call with OK. Invalidates the
 * handle. */
void grpcd_reply(struct grpcd_call *call, struct buf *message);
/* Ends the call, after its queued message. The client gets the status and at most 512
 * bytes of the text; GRPC_OK has no text. Invalidates the handle. */
void grpcd_end(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends the call with grpc_status_of the error's code, and its message. Invalidates the
 * handle. */
void grpcd_fail(struct grpcd_call *call, const struct err *why);
