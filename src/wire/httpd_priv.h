/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/list.h"
#include "wire/httpd.h"
#include "wire/tls_priv.h"

/*
 * Internals of the server.
 *
 *   httpd.c             the server and its listeners: start, drain, stop
 *   httpd_connection.c  connections: accept, deadlines, eviction, lingering
 *   httpd_request.c     requests: parsing, routes, handlers, replies
 *   httpd_stream.c      streamed replies; deferred requests
 *
 * The acceptor passes connections to libmicrohttpd, which never listens, for two reasons.
 * Stopping a busy pool from accepting can abort the process (version 0.9.75 panics on a
 * failed epoll_ctl), and connections in the backlog would be reset when a drain begins.
 * Its timeouts are disabled: they only measure inactivity, and a thread spins for the
 * last second of each.
 *
 * Lock order: httpd.lock or httpd_deferred.lock, httpd_conn.wait_lock, then the locks of
 * libmicrohttpd. No handler and no stream callback is called with a lock held.
 */

enum {
    HTTPD_DISCARD_MAX = 1 << 20, /* bytes of a rejected body that are read, if its length
                                    is unknown */
    HTTPD_GET_BODY_MAX = 4096,   /* bytes of the body of a GET */
    HTTPD_LINGERS = 64,
    HTTPD_LISTENERS = 4,
    HTTPD_SPARE = 64, /* connections over the limit that are being closed */
    HTTPD_ROUND_MIN_MS = 20,
    HTTPD_NICE = 10,             /* of threads that yield to those of trusted clients */
    HTTPD_STREAM_WAIT_MS = 1000, /* wait of a stream without httpd_stream_wake */
};

enum httpd_state { HTTPD_RUNNING, HTTPD_DRAINING, HTTPD_STOPPING };

/* A lingering close, as nginx has it: the sending side is shut down, and input is read
 * and discarded for a while. Closing at once would reset the connection if the client is
 * still sending, and a reset can overtake the reply. */
struct httpd_linger {
    int fd;
    int64_t until_ms;
    size_t left; /* bytes that may still be discarded */
};

struct httpd {
    struct httpd_limits limits;
    int64_t send_ms; /* without progress of a reply */
    atomic_int state;
    atomic_uint in_flight;
    _Atomic uint64_t body_bytes; /* charged by all requests */
    _Atomic uint64_t timed_out, evicted, rejected;
    int wake_fd;
    int hup_fd; /* epoll: connections whose client has closed its sending side */
    pthread_t acceptor;
    bool has_acceptor;
    int64_t check_ms; /* acceptor: next check of all connections */

    pthread_mutex_t lock; /* protects the fields below, and httpd_conn.stream */
    pthread_cond_t gone;  /* a connection was closed, or the listeners were */
    bool closed;          /* all listeners are closed */
    unsigned connections;
    struct list conns;                                 /* struct httpd_conn */
    struct httpd_listener *listeners[HTTPD_LISTENERS]; /* append-only */
    size_t n_listeners;
    struct httpd_linger linger[HTTPD_LINGERS];
    size_t n_lingers;
};

struct httpd_listener {
    struct httpd *d;
    struct httpd_listener_config conf;
    int fd; /* -1: closed */
    struct MHD_Daemon *mhd;
    atomic_bool started;    /* mhd is */
    atomic_int setup_fd;    /* a connection whose handshake begins; -1: none */
    int64_t setup_until_ms; /* the next is accepted then at the latest; acceptor only */
    unsigned open;          /* connections, also those not yet added to mhd; httpd.lock */
    unsigned leaving;       /* those of them that are evicted; httpd.lock */
    unsigned running;       /* handlers, without held and probes' ones; httpd.lock */
    unsigned held;          /* from httpd_hold until their return; httpd.lock */
    pthread_cond_t handed;  /* a handler is held or has returned; with httpd.lock */
    int64_t retry_ms;       /* next accept after a failure; acceptor only */
    int64_t warned_ms;      /* next warning; acceptor only */
};

/* What a connection does. Phase and deadline are one atomic word, because the acceptor
 * and the connection's thread may change them at the same time. */
enum httpd_phase {
    HTTPD_NEW,     /* accepted; no request line yet */
    HTTPD_REQUEST, /* receiving a request */
    HTTPD_WORK,    /* a handler runs, or a stream waits for data: no deadline */
    HTTPD_SEND,    /* sending a reply */
    HTTPD_IDLE,    /* between two requests */
    HTTPD_CLOSING, /* was NEW or IDLE when a drain closed its receiving side */
    HTTPD_CLOSED,  /* by the server: timed out, or in favor of another */
};

/* A connection and its current request. Owned by the thread that runs it, except for the
 * fields that say otherwise. */
struct httpd_conn {
    struct httpd_listener *listener;
    struct MHD_Connection *mhd;
    int fd;
    _Atomic uint64_t due;             /* phase and deadline; see httpd_conn_enter */
    struct list link;                 /* of httpd.conns; httpd.lock */
    struct httpd_open_stream *stream; /* httpd.lock */
    struct httpd_deferred *deferred;  /* httpd.lock; the request waits, or NULL */
    /* Since when the connection waits, is idle, or serves requests without a pause between
     * them: a client that pipelines requests does not become younger with each. */
    _Atomic int64_t since_ms;
    int64_t busy_ms;     /* since_ms before the connection became idle */
    atomic_bool trusted; /* see wire/httpd.h */
    bool queued;         /* waits for a handler; httpd.lock */
    bool held;           /* part of listener.held */
    /* Part of listener.leaving; written under httpd.lock. A request that waits for a
     * handler is to stop waiting. */
    atomic_bool leaving;
    uint64_t acked;           /* acceptor: bytes acknowledged at the last deadline */
    int64_t first_due_ms;     /* deadline of the first request; 0 after it */
    atomic_bool hung_up;      /* the client has closed its sending side */
    struct tls_client client; /* if the listener has a struct tls */
    bool ranked;              /* its thread has the priority of its client */

    pthread_mutex_t wait_lock; /* protects the four fields below */
    pthread_cond_t wakeup;
    bool woken;          /* since the last look */
    bool asleep;         /* suspended */
    int64_t due_wake_ms; /* when it is to be resumed, if it is suspended */

    bool in_request;
    bool seen_head;
    bool must_linger; /* input may be unread: a body was rejected */
    bool chunked;
    bool http_1_0;
    struct buf target; /* raw */
    struct httpd_request request;
    const struct httpd_route *route;
    bool is_probe;
    bool authorized;       /* `authorize` has allowed the request */
    unsigned error_status; /* reject the request with this status; 0: call the handler */
    const char *why;       /* error message of that reply */
    uint64_t length;       /* Content-Length, if not chunked */
    _Atomic uint64_t charged; /* part of httpd.body_bytes */
    uint64_t discarded;
    struct buf body;

    struct httpd_reply sent; /* whose body libmicrohttpd is sending */
};

/* httpd_connection.c */
void httpd_on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
                         enum MHD_ConnectionNotificationCode code);
/* Enters a phase. `due_ms` is its deadline, INT64_MAX: none. False: the acceptor has
 * closed the connection, and the caller must return MHD_NO. */
bool httpd_conn_enter(struct httpd_conn *p, enum httpd_phase phase, int64_t due_ms);
void httpd_conn_begin(struct httpd_conn *p);
void httpd_conn_end(struct httpd_conn *p);
bool httpd_conn_is_closed(const struct httpd_conn *p); /* by the server */
/* Charges n bytes to httpd.body_bytes; may evict a larger body. False, without effect:
 * the limit is reached. */
bool httpd_conn_charge(struct httpd_conn *p, uint64_t n);
void httpd_conn_uncharge(struct httpd_conn *p);
enum httpd_phase httpd_conn_deadline_phase(uint64_t due);
int64_t httpd_conn_deadline_ms(uint64_t due);

/* httpd_request.c */
/* Releases what a struct httpd_reply has, and makes it a new one. */
void httpd_reply_drop(void *reply);
void *httpd_on_line(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result httpd_on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version,
                                 const char *data, size_t *data_n, void **ctx);
void httpd_on_completed(void *cls, struct MHD_Connection *mhd, void **ctx,
                        enum MHD_RequestTerminationCode why);

/* httpd_stream.c */
/* Ends the wait of the connection, or its next one since the last look. */
void httpd_conn_wake(struct httpd_conn *p);
/* Require httpd.lock. httpd_conn_wake_all wakes streams, and when the server stops also
 * deferred requests. httpd_conn_wake_due wakes a suspended connection whose time has come,
 * and returns when it is to be called next, or INT64_MAX. */
void httpd_conn_wake_all(struct httpd *d);
int64_t httpd_conn_wake_due(struct httpd_conn *p, int64_t now_ms);
/* Takes the body and the stream of the reply. NULL: libmicrohttpd is out of memory, and
 * the stream is closed. */
struct MHD_Response *httpd_stream_new(struct httpd_conn *p, struct httpd_reply *reply);
/* Waits for httpd_resume; the deadline does not pass meanwhile. False: the connection is
 * suspended, and the request goes on later. */
bool httpd_deferred_wait(struct httpd_conn *p);
/* Releases p->deferred; NULL is accepted. */
void httpd_deferred_release(struct httpd_conn *p);

/* The acceptor's thread */
int httpd_acceptor_start(struct httpd *d, struct err *err);
void httpd_acceptor_wake(struct httpd *d);
