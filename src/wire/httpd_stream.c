/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/*
 * libmicrohttpd asks for bytes with on_read, which asks `fill`. What `fill` appends goes
 * out before what it returned takes effect.
 *
 * Asleep, a connection with a thread of its own waits in on_read; another one is
 * suspended, and on_read is asked anew when it is resumed. on_read must not return 0
 * otherwise: it would be asked again and again. Resuming twice, or a connection that is
 * not suspended, is undefined; `asleep` under the lock keeps that apart.
 */

enum { KEEP_OUT = 16 * 1024, BLOCK = 1024 };

struct httpd_waker {
    struct httpd_conn *peer;
    const struct httpd_stream *fn;
    void *ctx;
    struct buf out; /* what fill has appended */
    size_t at;      /* what libmicrohttpd has taken of it */
    enum httpd_stream_result next;
    bool opened;
    bool rested; /* has slept since the last fill */
    bool plain;  /* HTTP/1.0: no chunks */

    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool woken;  /* since the last fill began */
    bool asleep; /* suspended */
    int64_t asleep_ms;
};

static void wake(struct httpd_waker *s)
{
    if (s->asleep) {
        s->asleep = false;
        MHD_resume_connection(s->peer->mhd);
    }
    pthread_cond_signal(&s->cond);
}

void httpd_wake(struct httpd_waker *s)
{
    pthread_mutex_lock(&s->lock);
    s->woken = true;
    wake(s);
    pthread_mutex_unlock(&s->lock);
}

void httpd_stream_wake_all(struct httpd *d)
{
    for (struct httpd_conn *p = d->peers; p; p = p->next)
        if (p->stream)
            httpd_wake(p->stream);
}

int64_t httpd_stream_wake_due(struct httpd_waker *s, int64_t now_ms)
{
    pthread_mutex_lock(&s->lock);
    int64_t due = s->asleep ? s->asleep_ms + HTTPD_STREAM_WAIT_MS : INT64_MAX;
    if (due <= now_ms)
        wake(s);
    pthread_mutex_unlock(&s->lock);
    return due <= now_ms ? INT64_MAX : due;
}

static bool running(const struct httpd_waker *s)
{
    return atomic_load(&s->peer->door->d->state) == HTTPD_RUNNING;
}

static bool hung_up(const struct httpd_waker *s)
{
    struct pollfd fd = {.fd = s->peer->fd, .events = POLLRDHUP};
    return poll(&fd, 1, 0) > 0;
}

static void wait_here(struct httpd_waker *s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += HTTPD_STREAM_WAIT_MS / 1000;
    pthread_mutex_lock(&s->lock);
    while (!s->woken && running(s))
        if (pthread_cond_timedwait(&s->cond, &s->lock, &until) != 0)
            break;
    pthread_mutex_unlock(&s->lock);
}

/* False when there is no need to sleep any more. */
static bool suspend(struct httpd_waker *s)
{
    pthread_mutex_lock(&s->lock);
    if (!s->woken && running(s)) {
        s->asleep = true;
        s->asleep_ms = clock_mono_ms();
        MHD_suspend_connection(s->peer->mhd);
    }
    bool asleep = s->asleep;
    pthread_mutex_unlock(&s->lock);
    return asleep;
}

static void ask(struct httpd_waker *s)
{
    if (!s->opened) {
        s->opened = true;
        s->fn->open(s->ctx, s);
    }
    pthread_mutex_lock(&s->lock);
    s->woken = false;
    pthread_mutex_unlock(&s->lock);
    s->next = s->fn->fill(s->ctx, &s->out);
    if (s->next == HTTPD_STREAM_MORE && !s->out.n)
        s->next = HTTPD_STREAM_WAIT;
}

static ssize_t break_off(struct httpd_waker *s, char *to)
{
    shutdown(s->peer->fd, SHUT_RDWR);
    to[0] = '\n'; /* never sent */
    return 1;
}

static ssize_t give(struct httpd_waker *s, char *to, size_t max)
{
    size_t n = s->out.n - s->at;
    if (n > max)
        n = max;
    memcpy(to, s->out.p + s->at, n);
    s->at += n;
    if (s->at == s->out.n) {
        s->at = 0;
        buf_clear(&s->out);
        if (s->out.cap > KEEP_OUT)
            buf_fini(&s->out);
    }
    return (ssize_t)n;
}

/* What libmicrohttpd is to be told, or 0 when the stream is asleep. */
static ssize_t next(struct httpd_waker *s, char *to, size_t max)
{
    bool threads = s->peer->door->conf.mode == HTTPD_THREADS;
    for (;;) {
        int state = atomic_load(&s->peer->door->d->state);
        if (state == HTTPD_STOPPING)
            return break_off(s, to);
        if (s->at < s->out.n)
            return give(s, to, max);
        if (s->next == HTTPD_STREAM_ABORT)
            return break_off(s, to);
        if (s->next == HTTPD_STREAM_END || state == HTTPD_DRAINING)
            return s->plain ? break_off(s, to) : MHD_CONTENT_READER_END_OF_STREAM;
        if (s->next == HTTPD_STREAM_WAIT && !s->rested) {
            if (atomic_load(&s->peer->hung)) /* it may have before there was a stream */
                return break_off(s, to);
            s->rested = true;
            if (threads)
                wait_here(s);
            else if (suspend(s))
                return 0;
            continue;
        }
        if (s->rested && hung_up(s))
            return break_off(s, to);
        s->rested = false;
        ask(s);
    }
}

static ssize_t on_read(void *cls, uint64_t pos, char *to, size_t max)
{
    (void)pos;
    struct httpd_waker *s = cls;
    const struct httpd_limits *limits = &s->peer->door->d->limits;
    if (!httpd_conn_enter(s->peer, HTTPD_WORK, INT64_MAX))
        return break_off(s, to);
    ssize_t n = next(s, to, max);
    if (n != 0)
        httpd_conn_enter(s->peer, HTTPD_SEND, clock_mono_ms() + limits->idle_ms);
    return n;
}

static void on_free(void *cls)
{
    struct httpd_waker *s = cls;
    struct httpd *d = s->peer->door->d;
    pthread_mutex_lock(&d->lock);
    s->peer->stream = NULL;
    pthread_mutex_unlock(&d->lock);
    s->fn->close(s->ctx);
    pthread_cond_destroy(&s->cond);
    pthread_mutex_destroy(&s->lock);
    buf_fini(&s->out);
    free(s);
}

struct MHD_Response *httpd_stream_new(struct httpd_conn *p, struct httpd_reply *reply)
{
    struct httpd_waker *s = xcalloc(1, sizeof *s);
    s->peer = p;
    s->fn = reply->stream;
    s->ctx = reply->stream_ctx;
    s->next = HTTPD_STREAM_MORE;
    s->plain = p->http_1_0;
    if (reply->body.n)
        s->out = reply->body;
    else
        buf_fini(&reply->body);
    reply->body = (struct buf){0};
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->cond, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
    struct httpd *d = p->door->d;
    pthread_mutex_lock(&d->lock);
    p->stream = s;
    pthread_mutex_unlock(&d->lock);
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, on_read, s, on_free);
    if (!r)
        on_free(s);
    return r;
}
