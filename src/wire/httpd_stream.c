/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Streamed replies, and deferred requests: what waits with libmicrohttpd's suspend and
 * resume, or in the connection's own thread.
 */

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "wire/httpd_priv.h"

/* -- Streamed replies -- */

/*
 * libmicrohttpd calls on_read for more bytes, and on_read calls `fill`. The bytes that
 * `fill` appends are sent before its result takes effect.
 *
 * A waiting stream blocks in on_read if its connection has a thread of its own. Otherwise
 * the connection is suspended, and libmicrohttpd calls on_read again when it is resumed.
 * on_read returns 0 only then, because libmicrohttpd would call it in a loop. Resuming a
 * connection that is not suspended is undefined; `asleep`, under the lock, prevents that.
 */

enum { OUT_RETAIN_MAX = 16 * 1024, BLOCK = 1024, SIZED_BLOCK = 16 * 1024 };

/* Requires s->lock. */
static void wake(struct httpd_open_stream *s)
{
    s->wake_ms = INT64_MAX;
    if (s->asleep) {
        s->asleep = false;
        MHD_resume_connection(s->conn->mhd);
    }
    pthread_cond_signal(&s->cond);
}

void httpd_stream_wake(struct httpd_open_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->woken = true;
    wake(s);
    pthread_mutex_unlock(&s->lock);
}

void httpd_stream_wake_at(struct httpd_open_stream *s, int64_t at_ms)
{
    s->due_ms = at_ms;
}

void httpd_stream_wake_all(struct httpd *d)
{
    LIST_EACH(struct httpd_conn, p, &d->conns, link)
    if (p->stream)
        httpd_stream_wake(p->stream);
}

int64_t httpd_stream_wake_due(struct httpd_open_stream *s, int64_t now_ms)
{
    pthread_mutex_lock(&s->lock);
    int64_t due = s->wake_ms;
    if (due <= now_ms)
        wake(s);
    else if (due != INT64_MAX) /* a stream that waits does not age, see evict_some */
        atomic_store(&s->conn->since_ms, now_ms);
    pthread_mutex_unlock(&s->lock);
    return due <= now_ms ? INT64_MAX : due;
}

static int64_t wait_due(const struct httpd_open_stream *s, int64_t now_ms)
{
    int64_t due = s->due_ms ? s->due_ms : now_ms + HTTPD_STREAM_WAIT_MS;
    return due < INT64_MAX ? due : INT64_MAX - 1;
}

static bool is_running(const struct httpd_open_stream *s)
{
    return atomic_load(&s->conn->listener->d->state) == HTTPD_RUNNING;
}

static bool hung_up(const struct httpd_open_stream *s)
{
    struct pollfd fd = {.fd = s->conn->fd, .events = POLLRDHUP};
    return poll(&fd, 1, 0) > 0;
}

static void wait_here(struct httpd_open_stream *s)
{
    int64_t until_ms = clock_mono_ms() + HTTPD_STREAM_WAIT_MS;
    pthread_mutex_lock(&s->lock);
    while (!s->woken && is_running(s))
        if (!thread_wait_until(&s->cond, &s->lock, until_ms))
            break;
    pthread_mutex_unlock(&s->lock);
}

/* Suspends the connection. False: it was woken meanwhile. */
static bool suspend(struct httpd_open_stream *s)
{
    pthread_mutex_lock(&s->lock);
    if (!s->woken && is_running(s)) {
        s->asleep = true;
        s->wake_ms = wait_due(s, clock_mono_ms());
        MHD_suspend_connection(s->conn->mhd);
    }
    bool asleep = s->asleep;
    pthread_mutex_unlock(&s->lock);
    return asleep;
}

static void fill_out(struct httpd_open_stream *s, struct buf *out)
{
    if (!s->opened) {
        s->opened = true;
        s->fn->open(s->ctx, s);
    }
    pthread_mutex_lock(&s->lock);
    s->woken = false;
    pthread_mutex_unlock(&s->lock);
    s->due_ms = 0;
    s->next = s->fn->fill(s->ctx, out);
    if (s->next == HTTPD_STREAM_MORE && !out->n)
        s->next = HTTPD_STREAM_WAIT;
}

static ssize_t abort_conn(struct httpd_open_stream *s, char *to)
{
    shutdown(s->conn->fd, SHUT_RDWR);
    to[0] = '\n'; /* never sent */
    return 1;
}

static ssize_t copy_out(struct httpd_open_stream *s, char *to, size_t max)
{
    size_t n = s->out.n - s->at;
    if (n > max)
        n = max;
    memcpy(to, s->out.p + s->at, n);
    s->at += n;
    if (s->at == s->out.n) {
        s->at = 0;
        buf_clear(&s->out);
        if (s->out.cap > OUT_RETAIN_MAX)
            buf_fini(&s->out);
    }
    return (ssize_t)n;
}

/* The result of on_read; 0 if the connection is suspended. */
static ssize_t next(struct httpd_open_stream *s, char *to, size_t max)
{
    bool threads = s->conn->listener->conf.mode == HTTPD_THREADS;
    for (;;) {
        int state = atomic_load(&s->conn->listener->d->state);
        if (state == HTTPD_STOPPING)
            return abort_conn(s, to);
        if (s->at < s->out.n)
            return copy_out(s, to, max);
        if (s->next == HTTPD_STREAM_ABORT)
            return abort_conn(s, to);
        if (s->next == HTTPD_STREAM_END || (state == HTTPD_DRAINING && !s->sized))
            return s->plain ? abort_conn(s, to) : MHD_CONTENT_READER_END_OF_STREAM;
        if (s->next == HTTPD_STREAM_WAIT && !s->waited) {
            if (atomic_load(
                    &s->conn->hung_up)) /* possibly before the stream was opened */
                return abort_conn(s, to);
            s->waited = true;
            if (threads)
                wait_here(s);
            else if (suspend(s))
                return 0;
            continue;
        }
        if (s->waited && hung_up(s))
            return abort_conn(s, to);
        s->waited = false;
        fill_out(s, &s->out);
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
        httpd_conn_enter(s->conn, HTTPD_SEND, now + s->conn->listener->d->limits.idle_ms);
    return n;
}

static void on_free(void *cls)
{
    struct httpd_open_stream *s = cls;
    struct httpd *d = s->conn->listener->d;
    pthread_mutex_lock(&d->lock);
    s->conn->stream = NULL;
    pthread_mutex_unlock(&d->lock);
    s->fn->close(s->ctx);
    pthread_cond_destroy(&s->cond);
    pthread_mutex_destroy(&s->lock);
    buf_fini(&s->out);
    free(s);
}

struct MHD_Response *httpd_stream_new(struct httpd_conn *p, struct httpd_reply *reply)
{
    struct httpd_open_stream *s = xcalloc(1, sizeof *s);
    s->conn = p;
    s->fn = reply->stream;
    s->ctx = reply->stream_ctx;
    s->next = HTTPD_STREAM_MORE;
    s->wake_ms = INT64_MAX;
    s->plain = p->http_1_0;
    s->sized = reply->stream_length > 0;
    uint64_t length = s->sized ? reply->body.n + reply->stream_length : MHD_SIZE_UNKNOWN;
    if (reply->body.n)
        s->out = reply->body;
    else
        buf_fini(&reply->body);
    reply->body = (struct buf){0};
    pthread_cond_init(&s->cond, NULL);
    pthread_mutex_init(&s->lock, NULL);
    struct httpd *d = p->listener->d;
    pthread_mutex_lock(&d->lock);
    p->stream = s;
    pthread_mutex_unlock(&d->lock);
    struct MHD_Response *r = MHD_create_response_from_callback(
        length, s->sized ? SIZED_BLOCK : BLOCK, on_read, s, on_free);
    if (!r)
        on_free(s);
    return r;
}

/* -- Deferred requests -- */

/*
 * With a thread per connection the thread blocks; otherwise the connection is suspended,
 * and libmicrohttpd calls httpd_on_request again when it is resumed.
 *
 * A deferral has two references: one of the connection and one of the code that decides.
 */

struct httpd_deferred {
    atomic_uint refs;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct httpd_conn *conn; /* NULL: the connection waits no longer */
    bool done;
    bool suspended; /* of the connection's thread */
};

static void release(struct httpd_deferred *w)
{
    if (atomic_fetch_sub(&w->refs, 1) != 1)
        return;
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static bool has_thread(const struct httpd_conn *p)
{
    return p->listener->conf.mode == HTTPD_THREADS;
}

/* Requires w->lock. */
static void finish(struct httpd_deferred *w)
{
    if (w->done || !w->conn)
        return;
    w->done = true;
    if (has_thread(w->conn))
        pthread_cond_signal(&w->cond);
    else
        MHD_resume_connection(w->conn->mhd);
}

struct httpd_deferred *httpd_defer(const struct httpd_request *req)
{
    struct httpd_conn *p = req->conn;
    struct httpd *d = p->listener->d;
    struct httpd_deferred *w = xcalloc(1, sizeof *w);
    atomic_init(&w->refs, 2);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->cond, NULL);
    w->conn = p;
    pthread_mutex_lock(&d->lock);
    p->deferred = w;
    if (atomic_load(&d->state) == HTTPD_STOPPING) /* nobody would resume it */
        w->done = true;
    else if (!has_thread(p))
        MHD_suspend_connection(p->mhd);
    w->suspended = !w->done && !has_thread(p);
    pthread_mutex_unlock(&d->lock);
    return w;
}

void httpd_resume(struct httpd_deferred *w)
{
    pthread_mutex_lock(&w->lock);
    finish(w);
    pthread_mutex_unlock(&w->lock);
    release(w);
}

void httpd_deferred_cancel(struct httpd_conn *p)
{
    if (!p->deferred)
        return;
    pthread_mutex_lock(&p->deferred->lock);
    finish(p->deferred);
    pthread_mutex_unlock(&p->deferred->lock);
}

void httpd_deferred_cancel_all(struct httpd *d)
{
    LIST_EACH(struct httpd_conn, p, &d->conns, link)
    httpd_deferred_cancel(p);
}

bool httpd_deferred_wait(struct httpd_conn *p)
{
    struct httpd_deferred *w = p->deferred;
    if (!has_thread(p))
        return !w->suspended;
    uint64_t due = atomic_load(&p->due); /* of a body that is not yet read, or none */
    int64_t began_ms = clock_mono_ms();
    httpd_conn_enter(p, HTTPD_WORK, INT64_MAX);
    pthread_mutex_lock(&w->lock);
    while (!w->done)
        pthread_cond_wait(&w->cond, &w->lock);
    pthread_mutex_unlock(&w->lock);
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
