/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "wire/grpc_priv.h"
#include "wire/grpcd.h"

/*
 * Internals of the server; grpc_priv.h lists the files.
 *
 * Connections and streams belong to the server's thread (or to a test without one). A
 * call is shared: other threads change it under grpcd.lock, and grpcd_call_flush moves
 * the changes to its stream. No handler is called with the lock held.
 */

enum {
    GRPCD_HEADERS_MAX = 64, /* fields */
    GRPCD_HEADER_BYTES_MAX = 16 * 1024,
    GRPCD_PATH_KEPT = 200,   /* bytes of :path that are kept; no method is longer */
    GRPCD_FAULTS_MAX = 100,  /* malformed requests before the connection is closed */
    GRPCD_WHY_MAX = 512,     /* bytes of grpc-message */
    GRPCD_RESET_BURST = 500, /* resets by the client: burst, and per second */
    GRPCD_RESET_RATE = 50,
};

enum grpcd_state { GRPCD_RUNNING, GRPCD_DRAINING, GRPCD_STOPPING };

/* The file of a listening socket. */
struct grpcd_socket {
    char *path; /* new */
    int fd;     /* -1: closed */
    dev_t dev;
    ino_t ino;
};
int grpcd_socket_open(struct grpcd_socket *s, const char *path, struct err *err);
bool grpcd_socket_is_ours(const struct grpcd_socket *s);
/* Removes the file if it is ours, and closes. */
void grpcd_socket_close(struct grpcd_socket *s);

struct grpcd {
    struct grpcd_limits limits;
    const struct grpcd_method *methods;
    void *ctx;
    struct grpcd_socket socket;
    pthread_t thread;
    bool has_thread;
    int wake_fd; /* eventfd; -1: there is no thread */

    /* owned by the server's thread */
    struct grpcd_conn *conns;
    unsigned n_conns;
    size_t request_bytes; /* of all requests in memory */
    int64_t warn_ms;      /* time of the next warning about rejected connections */

    pthread_mutex_t lock; /* protects the fields below, and the shared fields of calls */
    pthread_cond_t drained;
    enum grpcd_state state;
    bool is_awake;            /* the thread will check the fields before it sleeps */
    bool is_drained;          /* draining, and no connection is left */
    unsigned refs;            /* of the owner, and of each call */
    struct grpcd_call *dirty; /* calls to flush, oldest last */
    struct grpcd_stats stats;
};

/* A server without socket and thread, for tests and for grpcd_start. */
struct grpcd *grpcd_new(const struct grpcd_config *config);
void grpcd_unref_locked(struct grpcd *d); /* unlocks */
void grpcd_wake_locked(struct grpcd *d);
void grpcd_count_rejected(struct grpcd *d);
void *grpcd_loop(void *d); /* the thread */

struct grpcd_call {
    struct grpcd *d; /* a reference */
    const struct grpcd_method *method;
    int64_t deadline_ms;
    struct grpcd_stream *stream; /* of the server's thread; NULL: detached */

    /* under d->lock */
    unsigned refs; /* of the handler, the stream, the dirty list */
    struct buf next;
    bool has_next, is_ended, is_cancelled, is_dirty;
    enum grpc_status status;
    struct buf why;
    struct grpcd_call *next_dirty;
};

/* New, with two references: the handler's and the stream's. */
struct grpcd_call *grpcd_call_new(struct grpcd_stream *s);
/* Releases the stream's reference. `cancel`: call on_cancel, unless the call has ended.
 */
void grpcd_call_detach(struct grpcd_call *call, bool cancel);
/* Moves the output of all queued calls to their streams. */
void grpcd_call_flush(struct grpcd *d, int64_t now_ms);

/* The headers of a request. */
struct grpcd_headers {
    unsigned seen; /* bits of the fields that may occur once */
    bool is_malformed, is_too_large, is_post, is_grpc, has_bad_timeout, in_fields;
    int64_t timeout_ms; /* -1: none */
    size_t n, bytes;
    size_t path_n;
    char path[GRPCD_PATH_KEPT];
};
void grpcd_headers_add(struct grpcd_headers *head, struct span name, struct span value);
/* 0: a valid call; else an HTTP status, or GRPCD_HEADERS_RESET: reset the stream. */
enum { GRPCD_HEADERS_RESET = 1 };
unsigned grpcd_headers_check(const struct grpcd_headers *head);

struct grpcd_stream {
    struct grpcd_conn *conn;
    struct grpcd_stream *next, **link; /* of conn->streams */
    int32_t id;
    struct grpcd_headers head;
    bool has_head, has_request;
    bool ignores_input; /* discard the client's further input */
    const struct grpcd_method *method;
    struct grpc_reader in;
    struct grpcd_call *call; /* NULL: not started, ended, or cancelled */
    int64_t deadline_ms;     /* of the request, then of the call */
    int64_t call_until_ms;   /* the client's deadline */

    bool is_open; /* the response headers are submitted */
    unsigned char message_head[GRPC_HEAD];
    struct buf message; /* being sent, after its prefix */
    size_t left;        /* unsent bytes of both */
    struct buf queued;  /* the next message */
    bool has_queued;
    int64_t moved_ms; /* when output was last sent, or became pending */
    bool is_ending;   /* with `status`, after the messages */
    enum grpc_status status;
    struct buf why;
};
void grpcd_stream_new(struct grpcd_conn *c, int32_t id);
void grpcd_stream_free(struct grpcd_stream *s); /* cancels the call */
/* Events of the HTTP/2 session. */
void grpcd_stream_headers(struct grpcd_stream *s, bool end);
void grpcd_stream_data(struct grpcd_stream *s, struct span bytes);
void grpcd_stream_request_end(struct grpcd_stream *s);
void grpcd_stream_sent_last(struct grpcd_stream *s);
/* Output of the handler. Both take the buffer. */
void grpcd_stream_message(struct grpcd_stream *s, struct buf *message);
void grpcd_stream_end(struct grpcd_stream *s, enum grpc_status status, struct buf *why);
/* Cancels the call and ends the stream; drops the queued message. */
void grpcd_stream_reject(struct grpcd_stream *s, enum grpc_status status, const char *fmt,
                         ...) __attribute__((format(printf, 3, 4)));
/* Enforces deadlines. Returns the next one. */
int64_t grpcd_stream_tick(struct grpcd_stream *s);

struct grpcd_conn {
    struct grpcd *d;
    struct grpcd_conn *next;
    nghttp2_session *session;
    int64_t now_ms; /* time of the current event */
    struct grpcd_stream *streams;
    unsigned n_streams;
    unsigned faults;
    bool has_peer;    /* received its preface and SETTINGS */
    bool is_closing;  /* GOAWAY is submitted */
    bool is_broken;   /* to be closed at once */
    size_t output;    /* bytes of queued messages, with their prefixes */
    int64_t quiet_ms; /* when its last stream ended */

    int fd; /* the fields from here on belong to grpcd_loop.c */
    struct grpc_out out;
    bool is_blocked;
    int64_t moved_ms; /* when bytes were last written */
};
struct grpcd_conn *grpcd_conn_new(struct grpcd *d, int64_t now_ms);
void grpcd_conn_free(struct grpcd_conn *c);
/* Processes input. Output is queued in the session. */
void grpcd_conn_feed(struct grpcd_conn *c, const uint8_t *p, size_t n, int64_t now_ms);
/* Enforces deadlines. Returns the next one. */
int64_t grpcd_conn_tick(struct grpcd_conn *c, int64_t now_ms);
/* Rejects new calls and ends streams; the connection is done when its calls have ended.
 */
void grpcd_conn_drain(struct grpcd_conn *c, int64_t now_ms);
/* Whether the connection can be closed: no output and no calls are left. */
bool grpcd_conn_is_done(const struct grpcd_conn *c);
/* Counts a malformed request; closes the connection after GRPCD_FAULTS_MAX. */
void grpcd_conn_count_malformed(struct grpcd_conn *c);
void grpcd_conn_go_away(struct grpcd_conn *c, uint32_t code);
