/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "wire/grpc_priv.h"
#include "wire/grpcd.h"

/*
 * The parts of the server; see grpc_priv.h for the files.
 *
 * Connections and streams belong to the server's thread (or to a test that has none). A
 * call is shared: what threads hand over is under grpcd.lock, and it is moved on into the
 * stream by grpcd_call_flush. Nothing is called back while the lock is held.
 */

enum {
    GRPCD_HEADERS_MAX = 64, /* fields */
    GRPCD_HEADER_BYTES_MAX = 16 * 1024,
    GRPCD_PATH_KEPT = 200,   /* bytes of :path, longer than that of any method */
    GRPCD_FAULTS_MAX = 100,  /* malformed requests, then the connection is closed */
    GRPCD_WHY_MAX = 512,     /* bytes of the words of a status */
    GRPCD_RESET_BURST = 500, /* resets by the client at once, and per second */
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
    int wake_fd; /* eventfd; -1: nobody needs to be woken */

    /* the server's thread only */
    struct grpcd_conn *conns;
    unsigned n_conns;
    size_t request_bytes; /* held, all connections */
    int64_t warn_ms;      /* of refused connections: not before */

    pthread_mutex_t lock; /* protects what follows, and the shared part of calls */
    pthread_cond_t drained;
    enum grpcd_state state;
    bool is_awake;            /* the thread will look at all this before it sleeps */
    bool is_drained;          /* and no connection is left */
    unsigned refs;            /* the owner, and each call */
    struct grpcd_call *dirty; /* calls with something to move, oldest last */
    struct grpcd_stats stats;
};

/* Without socket and thread: for tests, and for grpcd_start. */
struct grpcd *grpcd_new(const struct grpcd_config *config);
void grpcd_unref_locked(struct grpcd *d); /* unlocks */
void grpcd_wake_locked(struct grpcd *d);
void grpcd_count_rejected(struct grpcd *d);
void *grpcd_loop(void *d); /* the thread */

struct grpcd_call {
    struct grpcd *d; /* a share of it */
    const struct grpcd_method *method;
    int64_t deadline_ms;
    struct grpcd_stream *stream; /* the server's thread only; NULL: over */

    /* under d->lock */
    unsigned refs; /* the handler's, the stream's, the dirty list's */
    struct buf next;
    bool has_next, is_ended, is_over, is_dirty;
    enum grpc_status status;
    struct buf why;
    struct grpcd_call *next_dirty;
};

/* The handler's share and the stream's. */
struct grpcd_call *grpcd_call_new(struct grpcd_stream *s);
/* Gives up the stream's share. `tell`: to the handler, unless it has ended the call. */
void grpcd_call_detach(struct grpcd_call *call, bool tell);
/* What the handlers have said since the last time goes into the streams. */
void grpcd_call_flush(struct grpcd *d, int64_t now_ms);

/* The headers of a request. */
struct grpcd_headers {
    unsigned seen; /* bits of those that may come once */
    bool is_malformed, is_too_large, is_post, is_grpc, has_bad_timeout, in_fields;
    int64_t timeout_ms; /* -1: none */
    size_t n, bytes;
    size_t path_n;
    char path[GRPCD_PATH_KEPT];
};
void grpcd_headers_add(struct grpcd_headers *head, struct span name, struct span value);
/* 0: a call; else the HTTP status of the refusal, or 1: the stream is to be reset. */
enum { GRPCD_HEADERS_RESET = 1 };
unsigned grpcd_headers_check(const struct grpcd_headers *head);

struct grpcd_stream {
    struct grpcd_conn *conn;
    struct grpcd_stream *next, **link; /* of conn->streams */
    int32_t id;
    struct grpcd_headers head;
    bool has_head, has_request;
    bool is_deaf; /* what the client still sends is ignored */
    const struct grpcd_method *method;
    struct grpc_reader in;
    struct grpcd_call *call; /* NULL: not started, ended, or over */
    int64_t deadline_ms;     /* of the request, then of the call */
    int64_t call_until_ms;   /* the client's deadline */

    bool is_open; /* the answer's headers are submitted */
    unsigned char message_head[GRPC_HEAD];
    struct buf message; /* that is being sent, behind its head */
    size_t left;        /* bytes of both */
    struct buf queued;  /* goes next */
    bool has_queued;
    int64_t moved_ms; /* since when nothing of what waits was taken */
    bool is_ending;   /* with this status, when all is sent */
    enum grpc_status status;
    struct buf why;
};
void grpcd_stream_new(struct grpcd_conn *c, int32_t id);
void grpcd_stream_free(struct grpcd_stream *s); /* tells the handler */
/* Events of the session. */
void grpcd_stream_headers(struct grpcd_stream *s, bool end);
void grpcd_stream_data(struct grpcd_stream *s, struct span bytes);
void grpcd_stream_request_end(struct grpcd_stream *s);
void grpcd_stream_sent_last(struct grpcd_stream *s);
/* The handler's words. The buffers are taken over. */
void grpcd_stream_message(struct grpcd_stream *s, struct buf *message);
void grpcd_stream_end(struct grpcd_stream *s, enum grpc_status status, struct buf *why);
/* Ends it without the handler, which is told; nothing that waits is sent. */
void grpcd_stream_reject(struct grpcd_stream *s, enum grpc_status status, const char *fmt,
                         ...) __attribute__((format(printf, 3, 4)));
/* Deadlines; returns when to look again. */
int64_t grpcd_stream_tick(struct grpcd_stream *s);

struct grpcd_conn {
    struct grpcd *d;
    struct grpcd_conn *next;
    nghttp2_session *session;
    int64_t now_ms; /* of the event that is being looked at */
    struct grpcd_stream *streams;
    unsigned n_streams;
    unsigned faults;
    bool has_peer;    /* its preface and settings have come */
    bool is_going;    /* GOAWAY is submitted */
    bool is_broken;   /* close it, now */
    size_t output;    /* bytes of answers that wait, heads included */
    int64_t quiet_ms; /* since when it has no streams */

    int fd; /* what follows belongs to the server's loop */
    struct grpc_out out;
    bool is_blocked;
    int64_t moved_ms; /* since when the socket takes nothing */
};
struct grpcd_conn *grpcd_conn_new(struct grpcd *d, int64_t now_ms);
void grpcd_conn_free(struct grpcd_conn *c);
/* Bytes of the peer. What it leads to is found in the session to send. */
void grpcd_conn_feed(struct grpcd_conn *c, const uint8_t *p, size_t n, int64_t now_ms);
/* Deadlines; returns when to look again, at latest. */
int64_t grpcd_conn_tick(struct grpcd_conn *c, int64_t now_ms);
/* No new calls; streams end; it is done when the rest has ended. */
void grpcd_conn_drain(struct grpcd_conn *c, int64_t now_ms);
/* Nothing is left to send or to wait for: it can be closed. */
bool grpcd_conn_is_done(const struct grpcd_conn *c);
/* The peer does what no peer does by mistake that often. */
void grpcd_conn_count_malformed(struct grpcd_conn *c);
void grpcd_conn_go_away(struct grpcd_conn *c, uint32_t code);
