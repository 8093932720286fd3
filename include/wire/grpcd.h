/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/grpc.h"

/*
 * A gRPC server on a unix socket, on nghttp2: one request message per call, one answer or
 * a stream of them. Messages are bytes; what is in them is the handlers' business.
 *
 * One thread of its own does all of it and runs the handlers, which must not block. A
 * handler gets a handle of the call and answers at once or later, from any thread.
 *
 * Only peers that run as root or as the user of this process are served. What a peer can
 * do to the process is bounded: connections, calls at a time, headers, size of a message
 * and of all requests together, time to send a request, resets, pings and settings that
 * come in a flood, and what waits for a reader who reads nothing.
 *
 * The :authority of a request may be anything printable: kubelets before 1.26 put the
 * path of the socket there, which is no authority to HTTP/2. Messages are never
 * compressed, and compressed ones are refused (UNIMPLEMENTED).
 */

struct grpcd;
struct grpcd_call;

struct grpcd_method {
    const char *path; /* "/v1beta1.DevicePlugin/Allocate"; NULL ends a table */
    bool stream;      /* more than one message may be sent */
    /* A request is complete; its bytes are borrowed until `start` returns. The handle is
     * the handler's until it has ended the call, which it must do exactly once, whatever
     * becomes of the client. */
    void (*start)(void *ctx, struct grpcd_call *call, struct span request);
    /* NULL, or: nobody waits for the answer any more. The client has cancelled or gone,
     * its deadline has passed, or the server stops. Called at most once, after `start`
     * has returned, by the server's thread, only for calls that have not been ended; the
     * call still has to be ended (here or elsewhere). A call that another thread is just
     * ending may still come by here: `call` is valid until `over` returns. */
    void (*on_cancel)(void *ctx, struct grpcd_call *call);
};

/* 0 takes the value in brackets. */
struct grpcd_limits {
    size_t max_message; /* bytes; larger requests: RESOURCE_EXHAUSTED [4 MiB] */
    size_t
        max_requests;  /* bytes of all requests that are held; above: the same [32 MiB] */
    size_t max_output; /* bytes of answers that wait in one connection; above: it is
                          closed [64 MiB] */
    unsigned connections; /* more: one without calls makes room, else the new one is
                             closed [8] */
    unsigned calls;       /* at a time, per connection [64] */
    int64_t request_ms;   /* from the first byte of a connection or a call until its
                             request is complete [10 s] */
    int64_t idle_ms;      /* a connection without calls [5 min] */
    int64_t stall_ms;     /* how long a client may take nothing of an answer [30 s] */
};

struct grpcd_config {
    const char *path;                   /* of the socket, at most 107 bytes; copied */
    const struct grpcd_method *methods; /* borrowed, like ctx, until grpcd_free */
    void *ctx;                          /* for the handlers */
    struct grpcd_limits limits;
};

/* Makes the socket (mode 0600, put in its place complete) and starts to serve. A socket
 * at the path that nobody listens on is replaced. ERR_CONFLICT: somebody does, or it is
 * no socket. ERR_INVALID: the path. ERR_UNAVAILABLE: anything else. */
struct grpcd *grpcd_start(const struct grpcd_config *config, struct err *err);
/* Does the path still lead to this server? (The kubelet removes the sockets of plugins
 * when it starts.) From any thread. */
bool grpcd_is_reachable(const struct grpcd *d);
/* Graceful end, first half: removes the socket if it is still ours, refuses new calls,
 * ends streams with UNAVAILABLE, waits until the other calls are answered and everything
 * is sent, at most `timeout_ms`. Returns whether that was so. Not from a handler. */
bool grpcd_stop(struct grpcd *d, int64_t timeout_ms);
/* Second half, also without the first: closes everything and joins the thread. Handles
 * that are still out there stay valid until their calls are ended. NULL is accepted. */
void grpcd_free(struct grpcd *d);

struct grpcd_stats {
    unsigned connections; /* now */
    unsigned calls;   /* now: from the headers of a request to the end of the answer */
    uint64_t started; /* calls that reached a handler, since the start */
    uint64_t refused; /* since the start: connections, and calls before any handler */
};
void grpcd_stats(struct grpcd *d, struct grpcd_stats *stats);

/* Calls. From any thread; none of these blocks. */

/* Sends a message in a stream. At most one waits for its turn: a newer one takes its
 * place. The bytes are taken over; *message is empty after it. */
void grpcd_send(struct grpcd_call *call, struct buf *message);
/* Sends the message and ends the call with OK. The handle is gone. */
void grpcd_reply(struct grpcd_call *call, struct buf *message);
/* Ends the call; a message that waits is sent before. The words (at most some hundred
 * bytes of them) go to the client; those of GRPC_OK are not sent. The handle is gone. */
void grpcd_end(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with an error: grpc_status_of its code, and its words. */
void grpcd_fail(struct grpcd_call *call, const struct err *why);
/* Nobody waits for the answer any more. */
bool grpcd_is_cancelled(struct grpcd_call *call);
/* When the client gives up, on clock_mono_ms; INT64_MAX: it did not say. */
int64_t grpcd_deadline_ms(const struct grpcd_call *call);
