/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/list.h"
#include "base/str.h"
#include "wire/grpc.h"

struct grpcc_request; /* wire/grpcc.h */
struct grpcd_config;  /* wire/grpcd.h */

/*
 *   grpc.c   what server and client share
 *   grpcc.c  the client
 *   grpcd.c  the server: calls, connections, thread, socket
 */

/* gRPC's Length-Prefixed-Message: a flag (1: compressed), the length in 4 bytes, the
 * message. */
enum { GRPC_HEAD = 5 };
enum grpc_read {
    GRPC_READ_MORE,    /* the message is incomplete */
    GRPC_READ_MESSAGE, /* `in` begins with the prefix and *message */
    GRPC_READ_INVALID, /* compressed, larger than `max`, or with an unknown flag: *status
                          and *err say which; they may be NULL */
};
enum grpc_read grpc_message_read(struct span in, size_t max, struct span *message,
                                 enum grpc_status *status, struct err *err);
/* Appends prefix and message. */
void grpc_message_add(struct buf *out, struct span message);

/* grpc-message: printable ASCII; '%' and other bytes are encoded as %XX. Decoding keeps
 * invalid escapes. */
void grpc_percent_encode(struct buf *out, struct span s);
void grpc_percent_decode(struct buf *out, struct span s);

/* grpc-timeout: at most 8 digits and a unit; rounded up to milliseconds. */
bool grpc_timeout_parse(struct span s, int64_t *ms);

/* False, with ERR_INVALID, if the path is empty or too long. */
bool grpc_address(const char *path, struct sockaddr_un *addr, struct err *err);

/* A header field; the bytes are borrowed until it is submitted. */
nghttp2_nv grpc_field(struct span name, struct span value);

/* Output buffer. */
struct grpc_out {
    struct buf bytes;
    size_t at; /* bytes already sent */
};
enum grpc_io { GRPC_IO_DONE, GRPC_IO_BLOCKED, GRPC_IO_BROKEN };
/* Writes the session's output until nothing is left or the socket would block. Sets
 * *moved if any byte was written. */
enum grpc_io grpc_io_write(struct grpc_out *out, nghttp2_session *session, int fd,
                           bool *moved);
/* Reads up to n bytes. GRPC_IO_DONE: *got bytes were read; GRPC_IO_BROKEN: end of file or
 * an error. */
enum grpc_io grpc_io_read(int fd, uint8_t *p, size_t n, size_t *got);

/* -- The client's call without its socket: bytes in, bytes out through the session -- */

struct grpcc_response {
    nghttp2_session *session;
    int32_t id;
    struct buf request; /* prefix and message */
    size_t sent;

    unsigned http_status;
    bool has_status;
    bool is_done; /* the stream has ended or failed */
    enum grpc_status status;
    struct buf text;    /* error message of the status */
    enum err_code code; /* ERR_NONE: grpc_status_err of the status */
    struct buf in;      /* messages with their prefixes */
    size_t taken;       /* bytes of `in` that were taken */
    size_t max_message;
};

void grpcc_response_init(struct grpcc_response *a, const struct grpcc_request *req);
void grpcc_response_fini(struct grpcc_response *a);
/* Processes bytes from the peer. */
void grpcc_response_feed(struct grpcc_response *a, const uint8_t *p, size_t n);
/* Fails the call if the session has neither input nor output left. */
void grpcc_response_check(struct grpcc_response *a);
/* Fails the call, unless it is done. */
void grpcc_response_fail(struct grpcc_response *a, enum grpc_status status,
                         const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Appends the oldest message to *message. False: there is none. */
bool grpcc_response_take(struct grpcc_response *a, struct buf *message);

/* -- The server --
 *
 * Connections, and the streams of calls, belong to the server's thread (or to a test
 * without one). Handlers change calls from any thread, under grpcd.lock; grpcd_flush
 * brings the changes to the HTTP/2 session. No handler is called with the lock held. */

struct grpcd {
    const struct grpcd_method *methods;
    void *ctx;
    size_t max_message;
    int64_t request_ms, stall_ms;
    char *path;     /* of the socket; new, NULL in a test without one */
    int listen_fd;  /* -1: closed */
    dev_t dev;      /* the file of the socket */
    ino_t ino;
    int wake_fd; /* eventfd; -1: there is no thread */
    pthread_t thread;
    bool has_thread;
    struct grpcd_conn *conns; /* owned by the server's thread */

    pthread_mutex_t lock; /* protects the fields below, and the shared fields of calls */
    pthread_cond_t drained;
    enum { GRPCD_RUNNING, GRPCD_DRAINING, GRPCD_STOPPING } state;
    bool is_drained; /* draining, and no connection is left */
    unsigned refs;   /* of the owner, and of each handle of a call */
};
/* A server without socket and thread, for tests and for grpcd_start. */
struct grpcd *grpcd_new(const struct grpcd_config *config);
/* Brings what handlers have posted to the sessions. */
void grpcd_flush(struct grpcd *d);

struct grpcd_conn {
    struct grpcd *d;
    struct grpcd_conn *next;
    nghttp2_session *session;
    struct list calls;
    int64_t now_ms;    /* time of the current event */
    bool is_waiting;   /* at the last check, output waited for the client */
    int64_t moved_ms;  /* when output last moved, or began to wait */
    bool is_closing;   /* GOAWAY is submitted */
    bool is_broken;    /* to be closed at once */
    int fd;            /* -1 in a test */
    struct grpc_out out;
    bool is_blocked; /* the socket takes no output */
};
struct grpcd_conn *grpcd_conn_new(struct grpcd *d, int64_t now_ms);
void grpcd_conn_free(struct grpcd_conn *c);
/* Processes input. Output is queued in the session. */
void grpcd_conn_feed(struct grpcd_conn *c, const uint8_t *p, size_t n, int64_t now_ms);
/* Enforces deadlines. Returns the next one. */
int64_t grpcd_conn_tick(struct grpcd_conn *c, int64_t now_ms);
/* Rejects new calls and ends streams; the connection is done when its calls have ended.
 */
void grpcd_conn_drain(struct grpcd_conn *c);
/* Whether the connection can be closed: no output and no calls are left. */
bool grpcd_conn_is_done(const struct grpcd_conn *c);

enum { GRPCD_PATH_KEPT = 200 }; /* bytes of :path; no method is longer */

struct grpcd_call {
    struct grpcd *d;
    const struct grpcd_method *method; /* NULL: unknown yet */
    struct grpcd_conn *conn;
    struct list link; /* of conn->calls */
    int32_t id;                      /* of the HTTP/2 stream */
    char path[GRPCD_PATH_KEPT + 1];
    bool has_headers, has_bad_timeout;
    int64_t request_until_ms, until_ms; /* the latter is the client's deadline */
    struct buf in;                      /* the request message with its prefix */
    bool is_started;
    bool is_open;       /* the response's headers are submitted */
    bool is_complete;   /* all of the response is in the session */
    struct buf sending; /* a message with its prefix */
    size_t sent;

    /* under d->lock */
    bool has_handle, has_stream; /* both false: freed */
    bool is_cancelled;           /* what the handler still posts is dropped */
    struct buf posted;           /* the next message, with its prefix; empty: none */
    bool is_ended;               /* with `status` and `why`, after the messages */
    enum grpc_status status;
    struct buf why;
};
