/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "lib/raw.h"
#include "lib/unit.h"
#include "wire/httpd.h"

/*
 * A server with routes that echo what the handler received, and a stream that a test
 * feeds. Each test program of the server includes this.
 */

/* Both modes, for tests that run in each. */
#define FOR_BOTH_MODES(mode)                                                             \
    for (enum httpd_mode mode = HTTPD_THREADS; mode <= HTTPD_EVENTS; mode++)

/* Starts `kit` in this mode. Further arguments replace fields of the listener:
 * .max_body = 1000. */
#define fixture_start(mode, limits, ...)                                                 \
    fixture_start_with(mode, limits, &(struct httpd_listener_config){__VA_ARGS__})

/* The body runs in each mode, with the server `kit` and a reply `r`, which are freed; the
 * arguments are those of fixture_start. */
#define FOR_BOTH_SERVERS(limits, ...)                                                    \
    FOR_BOTH_MODES(mode)                                                                 \
    for (bool runs = fixture_start(mode, limits, __VA_ARGS__); runs;                     \
         fixture_fini(), runs = false)                                                   \
        for (struct raw_reply r = {0}, *r_ = &r; r_; raw_reply_fini(&r), r_ = NULL)
/* ... and with a connection `c` to it. */
#define FOR_BOTH_CLIENTS(limits, ...)                                                    \
    FOR_BOTH_SERVERS(limits, __VA_ARGS__)                                                \
    for (struct raw c, *c_ = (raw_open(&c, kit.port), &c); c_; raw_close(&c), c_ = NULL)

/* The server of a test, and the state that its handlers and streams share. */
static struct {
    struct httpd *d;
    unsigned port;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int waiting;   /* waiting handlers of /block */
    bool released; /* releases them */
    struct feed *feeds;
    int n_feeds; /* open streams */
    atomic_int opened, closed, fills;
} kit;

/* One open stream. */
struct feed {
    struct feed *next;
    struct httpd_open_stream *stream; /* since the first fill */
    struct buf pending;
    enum httpd_stream_result then; /* when nothing is pending */
};

static enum httpd_stream_result
fixture_feed_fill(void *ctx, struct httpd_open_stream *stream, struct buf *out)
{
    struct feed *f = ctx;
    atomic_fetch_add(&kit.fills, 1);
    pthread_mutex_lock(&kit.lock);
    atomic_fetch_add(&kit.opened, !f->stream);
    f->stream = stream;
    bool some = f->pending.n;
    buf_add_span(out, buf_span(&f->pending));
    buf_clear(&f->pending);
    enum httpd_stream_result then = f->then;
    pthread_mutex_unlock(&kit.lock);
    return some && then == HTTPD_STREAM_WAIT ? HTTPD_STREAM_MORE : then;
}

static void fixture_feed_close(void *ctx)
{
    struct feed *f = ctx;
    pthread_mutex_lock(&kit.lock);
    struct feed **at = &kit.feeds;
    while (*at && *at != f)
        at = &(*at)->next;
    ck_assert_msg(*at == f, "a stream was closed twice");
    *at = f->next;
    kit.n_feeds--;
    pthread_mutex_unlock(&kit.lock);
    buf_fini(&f->pending);
    free(f);
    atomic_fetch_add(&kit.closed, 1);
}

static const struct httpd_stream fixture_feed = {.fill = fixture_feed_fill,
                                                 .close = fixture_feed_close};

static void fixture_on_stream(void *ctx, const struct httpd_request *req,
                              struct httpd_reply *reply)
{
    (void)ctx;
    struct feed *f = xcalloc(1, sizeof *f);
    f->then = HTTPD_STREAM_WAIT;
    buf_adds(&reply->body, req->query); /* sent before the stream */
    pthread_mutex_lock(&kit.lock);
    f->next = kit.feeds;
    kit.feeds = f;
    kit.n_feeds++;
    pthread_mutex_unlock(&kit.lock);
    reply->content_type = "text/plain";
    reply->stream = &fixture_feed;
    reply->stream_ctx = f;
}

/* Sends `text` on every stream with this result; wakes the streams if `wake`.
 */
static inline void fixture_say(const char *text, enum httpd_stream_result then, bool wake)
{
    pthread_mutex_lock(&kit.lock);
    for (struct feed *f = kit.feeds; f; f = f->next) {
        buf_adds(&f->pending, text);
        f->then = then;
        if (f->stream && wake)
            httpd_stream_wake(f->stream);
    }
    pthread_mutex_unlock(&kit.lock);
}

static void fixture_on_hello(void *ctx, const struct httpd_request *req,
                             struct httpd_reply *reply)
{
    (void)ctx, (void)req;
    reply->content_type = "text/plain";
    buf_adds(&reply->body, "hello\n");
}

static void fixture_on_echo(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    (void)ctx;
    buf_add_span(&reply->body, req->body);
}

static void fixture_on_size(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    (void)ctx;
    buf_add_i64(&reply->body, (int64_t)req->body.n);
}

/* Replies "METHOD path query x-header". */
static void fixture_on_show(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    (void)ctx;
    const char *x = httpd_header(req, "x-test");
    buf_printf(&reply->body, "%s [%s] [%s] [%s]%s", req->method, req->path, req->query,
               x ? x : "(none)", httpd_is_watch(req) ? " watch" : "");
}

static void fixture_on_block(void *ctx, const struct httpd_request *req,
                             struct httpd_reply *reply)
{
    (void)ctx, (void)req;
    pthread_mutex_lock(&kit.lock);
    kit.waiting++;
    pthread_cond_broadcast(&kit.changed);
    while (!kit.released)
        pthread_cond_wait(&kit.changed, &kit.lock);
    kit.waiting--;
    pthread_mutex_unlock(&kit.lock);
    buf_adds(&reply->body, "unblocked");
}

static void fixture_on_cut(void *ctx, const struct httpd_request *req,
                           struct httpd_reply *reply)
{
    (void)ctx, (void)req;
    buf_adds(&reply->body, "never seen");
    reply->abort = true;
}

static void fixture_on_teapot(void *ctx, const struct httpd_request *req,
                              struct httpd_reply *reply)
{
    (void)ctx, (void)req;
    httpd_fail(reply, 418, "short and \"%s\"", "stout");
    reply->header[0][0] = "X-One";
    reply->header[0][1] = "1";
    reply->header[1][0] = "X-Two";
    reply->header[1][1] = "2";
}

static void fixture_on_big(void *ctx, const struct httpd_request *req,
                           struct httpd_reply *reply)
{
    (void)ctx;
    size_t n = (size_t)strtoul(*req->query ? req->query : "1", NULL, 10) << 20;
    buf_reserve(&reply->body, n);
    memset(reply->body.p, 'x', n);
    reply->body.n = n;
}

static const struct httpd_route fixture_routes[] = {
    {"GET", "/hello", fixture_on_hello},
    {"POST", "/echo", fixture_on_echo},
    {"POST", "/size", fixture_on_size},
    {"GET", "/show", fixture_on_show},
    {"PUT", "/show", fixture_on_show},
    {"GET", "/pre/*", fixture_on_show},
    {NULL, "/any", fixture_on_show},
    {"GET", "/block", fixture_on_block},
    {"GET", "/stream", fixture_on_stream},
    {"GET", "/cut", fixture_on_cut},
    {"GET", "/teapot", fixture_on_teapot},
    {"GET", "/big", fixture_on_big},
    {0},
};

/* The default listener; tests change fields. */
static inline struct httpd_listener_config fixture_listener(int mode)
{
    return (struct httpd_listener_config){.name = mode == HTTPD_THREADS ? "threads"
                                                                        : "events",
                                          .address = "127.0.0.1",
                                          .mode = (enum httpd_mode)mode,
                                          .connections = 2000,
                                          .max_body = 8 << 20,
                                          .routes = fixture_routes};
}

static inline void fixture_init(const struct httpd_limits *limits)
{
    memset(&kit, 0, sizeof kit);
    kit.d = httpd_new(limits);
    pthread_mutex_init(&kit.lock, NULL);
    pthread_cond_init(&kit.changed, NULL);
}

/* `own`: what differs from the default listener. Returns true. */
static inline bool fixture_start_with(int mode, const struct httpd_limits *limits,
                                      const struct httpd_listener_config *own)
{
    struct httpd_listener_config listener = fixture_listener(mode);
    struct err err = {0};
    fixture_init(limits);
    listener.connections = own->connections ? own->connections : listener.connections;
    listener.max_body = own->max_body ? own->max_body : listener.max_body;
    listener.routes = own->routes ? own->routes : listener.routes;
    listener.handlers = own->handlers;
    listener.probes = own->probes;
    listener.tls = own->tls;
    listener.authorize = own->authorize;
    listener.authorize_ctx = own->authorize_ctx;
    ck_assert_done(httpd_listen(kit.d, &listener, &kit.port, &err), err);
    return true;
}

/* Releases the handlers of /block. */
static inline void fixture_release(void)
{
    pthread_mutex_lock(&kit.lock);
    kit.released = true;
    pthread_cond_broadcast(&kit.changed);
    pthread_mutex_unlock(&kit.lock);
}

static inline void fixture_wait_blocked(int n)
{
    pthread_mutex_lock(&kit.lock);
    while (kit.waiting < n)
        pthread_cond_wait(&kit.changed, &kit.lock);
    pthread_mutex_unlock(&kit.lock);
}

static inline bool fixture_is_blocked(void *ctx)
{
    (void)ctx;
    pthread_mutex_lock(&kit.lock);
    bool blocked = kit.waiting > 0;
    pthread_mutex_unlock(&kit.lock);
    return blocked;
}

/* Has the server sent bytes or closed the connection? */
static inline bool fixture_is_readable(const struct raw *c)
{
    struct pollfd fd = {.fd = c->fd, .events = POLLIN};
    return poll(&fd, 1, 0) != 0;
}

/* Opens a connection and sends the request, until has_arrived(ctx) is true. On a busy
 * machine the client can be too late for a limit of the server; only a connection that is
 * as old as `limit_ms` may have been closed. */
static inline void fixture_send_in_time(struct raw *c, const char *request,
                                        int64_t limit_ms, bool (*has_arrived)(void *ctx),
                                        void *ctx)
{
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    for (;;) {
        int64_t begin = lib_now_ms();
        raw_open(c, kit.port);
        raw_send(c, request, strlen(request));
        while (!has_arrived(ctx) && !fixture_is_readable(c)) {
            ck_assert_int_lt(lib_now_ms(), end);
            lib_pause();
        }
        if (has_arrived(ctx))
            return;
        ck_assert_int_ge(lib_now_ms() - begin, limit_ms);
        raw_close(c);
    }
}

/* Opens a connection and gets /hello on it, likewise until the client is in time. */
static inline void fixture_call_in_time(struct raw *c, int64_t limit_ms)
{
    struct raw_reply r = {0};
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    for (;;) {
        int64_t begin = lib_now_ms();
        ck_assert_int_lt(begin, end);
        raw_open(c, kit.port);
        if (raw_sendf(c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n") &&
            raw_read(c, &r) == RAW_OK)
            break;
        ck_assert_int_ge(lib_now_ms() - begin, limit_ms);
        raw_close(c);
    }
    raw_reply_fini(&r);
}

static inline void fixture_fini(void)
{
    httpd_free(kit.d);
    ck_assert_int_eq(kit.n_feeds, 0);
    pthread_cond_destroy(&kit.changed);
    pthread_mutex_destroy(&kit.lock);
}

/* The value of gpushare_http_NAME. */
static inline int64_t metric(const char *name)
{
    cleanup_buf struct buf out = {0};
    cleanup_free char *line = xasprintf("\ngpushare_http_%s ", name);
    httpd_metrics(kit.d, &out);
    const char *at = strstr(out.p, line);
    ck_assert_msg(at != NULL, "%s in %s", name, out.p);
    return strtoll(at + strlen(line), NULL, 10);
}

/* All connections are closed. */
static inline bool fixture_is_empty(void)
{
    return metric("connections") == 0 && metric("requests_in_flight") == 0 &&
           metric("request_body_bytes") == 0;
}

#define ck_assert_body(r, text) ck_assert_span_eq(buf_span(&(r).body), text)
