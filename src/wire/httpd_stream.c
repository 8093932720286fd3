/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Streamed replies, and deferred requests: what waits with libmicrohttpd's suspend and
 * resume, or in the connection's own thread.
 */

#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "wire/httpd_priv.h"

/* -- Waits -- */

/*
 * With a thread per connection the thread blocks. Otherwise the connection is suspended, and
 * libmicrohttpd calls on_read or httpd_on_request again when it is resumed. Resuming a
 * connection that is not suspended is undefined; `asleep`, under the lock, prevents that.
 */

static bool has_thread(const struct httpd_conn *p)
{
    return p->listener->conf.mode == HTTPD_THREADS;
}

/* Requires p->wait_lock. */
static void wake(struct httpd_conn *p)
{
    if (p->asleep)
        MHD_resume_connection(p->mhd);
    p->asleep = false;
    pthread_cond_signal(&p->wakeup);
}

void httpd_conn_wake(struct httpd_conn *p)
{
    pthread_mutex_lock(&p->wait_lock);
    p->woken = true;
    wake(p);
    pthread_mutex_unlock(&p->wait_lock);
}

void httpd_conn_wake_all(struct httpd *d)
{
    LIST_EACH(struct httpd_conn, p, &d->conns, link)
    if (p->stream || atomic_load(&d->state) == HTTPD_STOPPING)
        httpd_conn_wake(p);
}

int64_t httpd_conn_wake_due(struct httpd_conn *p, int64_t now_ms)
{
    pthread_mutex_lock(&p->wait_lock);
    int64_t due = p->asleep ? p->due_wake_ms : INT64_MAX;
    if (due <= now_ms)
        wake(p);
    pthread_mutex_unlock(&p->wait_lock);
    return due <= now_ms ? INT64_MAX : due;
}

/* Waits for a wake-up since p->woken was cleared, until `until_ms`, or until the server's
 * state is `end`. False: the connection is suspended. */
static bool wait_here(struct httpd_conn *p, int64_t until_ms, enum httpd_state end)
{
    const atomic_int *state = &p->listener->d->state;
    pthread_mutex_lock(&p->wait_lock);
    while (has_thread(p) && !p->woken && atomic_load(state) < (int)end &&
           thread_wait_until(&p->wakeup, &p->wait_lock, until_ms))
        ;
    if (!has_thread(p) && !p->woken && atomic_load(state) < (int)end) {
        p->asleep = true;
        p->due_wake_ms = until_ms;
        MHD_suspend_connection(p->mhd);
    }
    bool asleep = p->asleep;
    if (asleep && until_ms <= clock_mono_ms())
        wake(p); /* after the port's other connections */
    pthread_mutex_unlock(&p->wait_lock);
    return !asleep;
}

static void forget_wakeups(struct httpd_conn *p)
{
    pthread_mutex_lock(&p->wait_lock);
    p->woken = false;
    pthread_mutex_unlock(&p->wait_lock);
}

/* -- Streamed replies -- */

/*
 * libmicrohttpd calls on_read for more bytes, and on_read calls `fill`. The bytes that
 * `fill` appends are sent before its result takes effect. on_read returns 0 only if the
 * connection is suspended, because libmicrohttpd would call it in a loop.
 */

struct httpd_open_stream {
    struct httpd_conn *conn;
    struct httpd_reply reply; /* its body: appended by fill, for libmicrohttpd */
    size_t at;                /* bytes of it that libmicrohttpd has read */
    enum httpd_stream_result next;
    int64_t due_ms; /* of the next fill without a wake-up */
    bool waited;    /* since the last fill */
};

enum { OUT_RETAIN_MAX = 16 * 1024, BLOCK = 1024, FINITE_BLOCK = 16 * 1024 };

void httpd_stream_wake(struct httpd_open_stream *s)
{
    httpd_conn_wake(s->conn);
}

static bool hung_up(const struct httpd_open_stream *s)
{
    struct pollfd fd = {.fd = s->conn->fd, .events = POLLRDHUP};
    return poll(&fd, 1, 0) > 0;
}

static ssize_t abort_conn(struct httpd_open_stream *s, char *to)
{
    shutdown(s->conn->fd, SHUT_RDWR);
    to[0] = '\n'; /* never sent */
    return 1;
}

/* The result of on_read; 0 if the connection is suspended. */
static ssize_t next(struct httpd_open_stream *s, char *to, size_t max)
{
    struct buf *out = &s->reply.body;
    for (;;) {
        int state = atomic_load(&s->conn->listener->d->state);
        if (state == HTTPD_STOPPING)
            return abort_conn(s, to);
        if (s->at < out->n) {
            size_t n = out->n - s->at;
            if (n > max)
                n = max;
            memcpy(to, out->p + s->at, n);
            s->at += n;
            if (s->at == out->n) {
                s->at = 0;
                buf_clear(out);
                if (out->cap > OUT_RETAIN_MAX)
                    buf_fini(out);
            }
            return (ssize_t)n;
        }
        if (s->next == HTTPD_STREAM_ABORT)
            return abort_conn(s, to);
        if (s->next == HTTPD_STREAM_END ||
            (state == HTTPD_DRAINING && !s->reply.stream_finite))
            return s->conn->http_1_0 ? abort_conn(s, to) /* without chunks */
                                     : MHD_CONTENT_READER_END_OF_STREAM;
        if (s->next == HTTPD_STREAM_WAIT) {
            if (hung_up(s)) /* possibly before the first fill */
                return abort_conn(s, to);
            s->waited = !s->waited;
            if (s->waited && !wait_here(s->conn, s->due_ms, HTTPD_DRAINING))
                return 0;
            if (s->waited)
                continue;
        }
        forget_wakeups(s->conn);
        s->due_ms = clock_mono_ms() + HTTPD_STREAM_WAIT_MS;
        s->next = s->reply.stream->fill(s->reply.stream_ctx, s, out);
        if (s->next == HTTPD_STREAM_MORE && !out->n) {
            s->next = HTTPD_STREAM_WAIT;
            s->due_ms = 0;
        }
    }
}

static ssize_t on_read(void *cls, uint64_t pos, char *to, size_t max)
{
    (void)pos;
    struct httpd_open_stream *s = cls;
    int64_t now = clock_mono_ms();
    atomic_store(&s->conn->since_ms, now);
    if (!httpd_conn_enter(s->conn, HTTPD_WORK, INT64_MAX))
        return abort_conn(s, to);
    ssize_t n = next(s, to, max);
    if (n != 0)
        httpd_conn_enter(s->conn, HTTPD_SEND, now + s->conn->listener->d->send_ms);
    return n;
}

static void on_free(void *cls)
{
    struct httpd_open_stream *s = cls;
    struct httpd *d = s->conn->listener->d;
    pthread_mutex_lock(&d->lock);
    s->conn->stream = NULL;
    pthread_mutex_unlock(&d->lock);
    httpd_reply_drop(&s->reply);
    free(s);
}

struct MHD_Response *httpd_stream_new(struct httpd_conn *p, struct httpd_reply *reply)
{
    struct httpd_open_stream *s = xcalloc(1, sizeof *s);
    s->conn = p;
    s->reply = *reply;
    s->next = HTTPD_STREAM_MORE;
    if (!reply->body.n)
        buf_fini(&s->reply.body);
    struct httpd *d = p->listener->d;
    pthread_mutex_lock(&d->lock);
    p->stream = s;
    pthread_mutex_unlock(&d->lock);
    struct MHD_Response *r = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, reply->stream_finite ? FINITE_BLOCK : BLOCK, on_read, s,
        on_free);
    if (!r)
        on_free(s);
    return r;
}

/* -- Deferred requests -- */

/* It has two owners, the connection and the code that decides. */
struct httpd_deferred {
    atomic_uint refs;
    pthread_mutex_t lock;
    struct httpd_conn *conn; /* NULL: the connection waits no longer */
};

static void release(struct httpd_deferred *w)
{
    if (atomic_fetch_sub(&w->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&w->lock);
    free(w);
}

struct httpd_deferred *httpd_defer(const struct httpd_request *req)
{
    struct httpd_conn *p = req->conn;
    struct httpd *d = p->listener->d;
    struct httpd_deferred *w = xcalloc(1, sizeof *w);
    atomic_init(&w->refs, 2);
    pthread_mutex_init(&w->lock, NULL);
    w->conn = p;
    forget_wakeups(p);
    pthread_mutex_lock(&d->lock);
    p->deferred = w;
    pthread_mutex_unlock(&d->lock);
    return w;
}

void httpd_resume(struct httpd_deferred *w)
{
    pthread_mutex_lock(&w->lock);
    if (w->conn)
        httpd_conn_wake(w->conn);
    pthread_mutex_unlock(&w->lock);
    release(w);
}

bool httpd_deferred_wait(struct httpd_conn *p)
{
    uint64_t due = atomic_load(&p->due); /* of a body that is not yet read, or none */
    int64_t began_ms = clock_mono_ms();
    httpd_conn_enter(p, HTTPD_WORK, INT64_MAX);
    if (!wait_here(p, INT64_MAX, HTTPD_STOPPING))
        return false;
    httpd_conn_enter(p, httpd_conn_deadline_phase(due),
                     httpd_conn_deadline_ms(due) + clock_mono_ms() - began_ms);
    return true;
}

void httpd_deferred_release(struct httpd_conn *p)
{
    struct httpd *d = p->listener->d;
    if (!p->deferred) /* only this thread sets it */
        return;
    pthread_mutex_lock(&d->lock);
    struct httpd_deferred *w = steal(&p->deferred);
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_lock(&w->lock);
    w->conn = NULL;
    pthread_mutex_unlock(&w->lock);
    release(w);
}
