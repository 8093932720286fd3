/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "wire/httpd.h"
#include "wire/tls_priv.h"

/*
 * The parts of the server, and what they share.
 *
 *   httpd.c          the server and its listeners: start, drain, stop
 *   httpd_keeper.c   its one thread of its own: accepts, watches every deadline, lingers
 *   httpd_conn.c     a connection: its phase, its buffers, what it is charged
 *   httpd_request.c  what libmicrohttpd calls while a request comes in
 *   httpd_uri.c      target, parameters, headers
 *   httpd_reply.c    routes and replies
 *   httpd_stream.c   replies that are produced bit by bit
 *
 * libmicrohttpd gets its connections from the keeper and never listens, for two reasons:
 * to stop a pool from accepting while it is busy can abort the process (0.9.75 takes a
 * failed epoll_ctl there for a bug of its own), and what waits in the backlog when a
 * drain begins would be reset. Its timeouts are off: they count inactivity only, and a
 * thread burns its processor for the last second of each.
 *
 * Locks, in the order they may be nested: httpd.lock, httpd_waker.lock, those of
 * libmicrohttpd. Nothing is called back while one is held.
 */

enum {
    HTTPD_RETAIN_MAX = 1 << 20,    /* a buffer that is larger is given back after use */
    HTTPD_RETAIN_TOTAL = 64 << 20, /* as are all when so much is kept together */
    HTTPD_DISCARD_MAX = 1 << 20,   /* read, and thrown away, of a body that is refused */
    HTTPD_LINGERS = 64,
    HTTPD_STREAM_WAIT_MS = 1000, /* a stream sleeps no longer */
};

enum httpd_state { HTTPD_RUNNING, HTTPD_DRAINING, HTTPD_STOPPING };

/* A connection that is closed for us and still read for a while. Closing it at once would
 * reset it when the client is sending, and a reset can overtake the reply. */
struct httpd_linger {
    int fd;
    int64_t until_ms;
    size_t left;
};

struct httpd {
    struct httpd_limits limits;
    atomic_int state;
    atomic_uint in_flight;
    _Atomic uint64_t body_bytes; /* charged, all requests */
    _Atomic uint64_t timed_out;
    _Atomic uint64_t kept_bytes; /* buffers between their uses, all connections */
    int wake_fd;
    int hup_fd; /* epoll: connections whose client sends no more */
    pthread_t keeper;
    bool has_keeper;

    pthread_mutex_t lock; /* protects what follows, and httpd_conn.stream */
    pthread_cond_t gone;  /* a connection ended, or the doors were closed */
    bool closed;          /* no door is open any more */
    unsigned connections;
    struct httpd_conn *peers;
    struct httpd_listener **doors; /* only added to; an element stays where it is */
    size_t n_doors, cap_doors;
    struct httpd_linger linger[HTTPD_LINGERS];
    size_t n_lingers;
};

/* A listener. */
struct httpd_listener {
    struct httpd *d;
    struct httpd_listener_config conf; /* without the certificate */
    int fd;                            /* -1 once closed */
    struct MHD_Daemon *mhd;
    unsigned open;     /* connections, also those on their way to mhd; httpd.lock */
    int64_t retry_ms;  /* no accept before: descriptors ran out; keeper only */
    int64_t warned_ms; /* keeper only */
    pthread_t starter;
    char *starting; /* starter only: the last complaint of mhd */
};

/* What a connection is doing, and until when. Kept in one word, so that the keeper and
 * the connection's own thread cannot both win. */
enum httpd_phase {
    HTTPD_NEW,     /* accepted; no request line yet */
    HTTPD_REQUEST, /* a request is coming in */
    HTTPD_WORK,    /* a handler is running, a stream has nothing to say: no limit */
    HTTPD_SEND,    /* the client has to take something */
    HTTPD_IDLE,    /* between two requests */
    HTTPD_CLOSING, /* NEW or IDLE, and told to end; a request that is there is answered */
    HTTPD_TIMED_OUT, /* given up by the keeper */
};

/* A connection and the request that it carries. Belongs to the thread that runs it, but
 * for the fields that say otherwise. */
struct httpd_conn {
    struct httpd_listener *door;
    struct MHD_Connection *mhd;
    int fd;
    _Atomic uint64_t due;           /* phase and deadline; see httpd_conn_enter */
    struct httpd_conn *prev, *next; /* httpd.lock */
    struct httpd_waker *stream;     /* httpd.lock */
    uint64_t acked;                 /* keeper: what the client had taken when last seen */
    int64_t first_due_ms;           /* of the first request; 0 after it */
    atomic_bool hung;               /* the client sends no more */
    struct tls_client client;       /* when the door has a struct tls */

    bool in_request;
    bool seen_head;
    bool linger; /* a refused body may still be coming */
    bool chunked;
    bool http_1_0;
    const char *line; /* the target in libmicrohttpd's buffer, and its length */
    size_t line_n;
    struct buf target; /* path, NUL, query */
    const char *method, *query;
    const struct httpd_route *route;
    unsigned refusal; /* status to answer instead of a handler's, or 0 */
    const char *why;
    uint64_t length;  /* announced, when not chunked */
    uint64_t charged; /* of httpd.body_bytes */
    uint64_t swallowed;
    struct buf body;
    struct arena params;

    struct buf spare; /* the memory of the next reply */
    struct buf sent;  /* the reply that libmicrohttpd is sending */
    uint64_t kept;    /* of httpd.kept_bytes */
};

/* httpd_conn.c */
void httpd_on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
                         enum MHD_ConnectionNotificationCode code);
/* Goes on to a phase. `due_ms` is INT64_MAX for no limit. False when the keeper has cut
 * the connection off: then there is nothing left to do but return MHD_NO. */
bool httpd_conn_enter(struct httpd_conn *p, enum httpd_phase phase, int64_t due_ms);
void httpd_conn_begin(struct httpd_conn *p);
void httpd_conn_end(struct httpd_conn *p);
/* Charges n more bytes of body. False, and nothing is charged, when all are used up. */
bool httpd_conn_charge(struct httpd_conn *p, uint64_t n);
void httpd_conn_uncharge(struct httpd_conn *p);
/* Counts the buffers that p keeps, or gives them back when they are too many. */
void httpd_conn_settle(struct httpd_conn *p);
uint64_t httpd_conn_deadline(enum httpd_phase phase, int64_t due_ms);
enum httpd_phase httpd_conn_deadline_phase(uint64_t due);
int64_t httpd_conn_deadline_ms(uint64_t due);

/* httpd_request.c */
void *httpd_on_line(void *cls, const char *uri, struct MHD_Connection *mhd);
size_t httpd_on_unescape(void *cls, struct MHD_Connection *mhd, char *s);
enum MHD_Result httpd_on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version,
                                 const char *data, size_t *data_n, void **ctx);
void httpd_on_completed(void *cls, struct MHD_Connection *mhd, void **ctx,
                        enum MHD_RequestTerminationCode why);

/* httpd_uri.c */
/* Decodes the path in p->target and checks the query. False when either is malformed. */
bool httpd_uri_parse(struct httpd_conn *p);
/* Does every server read this header in the same way? */
bool httpd_header_sane(struct span name, struct span value);

/* httpd_reply.c */
/* Finds the route; without one, sets p->refusal to 404 or 405. */
void httpd_route(struct httpd_conn *p);
/* Each queues a reply, or returns MHD_NO to break the connection off. */
enum MHD_Result httpd_handle(struct httpd_conn *p);
enum MHD_Result httpd_reject(struct httpd_conn *p);

/* httpd_stream.c */
/* Takes the body and the stream of the reply. NULL when libmicrohttpd has no memory; the
 * stream is closed then. */
struct MHD_Response *httpd_stream_new(struct httpd_conn *p, struct httpd_reply *reply);
/* Both with httpd.lock held. The second wakes a stream that has slept for a second, and
 * returns when it will have, or INT64_MAX. */
void httpd_stream_wake_all(struct httpd *d);
int64_t httpd_stream_wake_due(struct httpd_waker *s, int64_t now_ms);

/* httpd_keeper.c */
int httpd_acceptor_start(struct httpd *d, struct err *err);
void httpd_acceptor_wake(struct httpd *d);
