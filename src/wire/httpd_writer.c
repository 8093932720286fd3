/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/*
 * One thread that calls `fill` of the direct streams and writes the chunks to the sockets.
 * libmicrohttpd has suspended their connections and uses neither socket nor TLS session of
 * them. With libmicrohttpd each wake-up takes three system calls and a look at all suspended
 * connections, and 48 KB of buffers stay with each stream.
 *
 * A stream is in one of these states, and only this thread changes it:
 *
 *   queued   woken, or it has more to send; one chunk in each turn
 *   waiting  until httpd_writer_wake
 *   blocked  the socket takes no more; until epoll reports that it does
 *
 * The unsent part of a chunk is kept until the socket takes it, also when the stream is to
 * end. A connection that goes back to libmicrohttpd before that can only be closed.
 */

enum {
    EVENTS = 64,
    TURN = 8,  /* streams, about a tenth of a millisecond, before others may run */
    HEAD = 12, /* bytes of a chunk's length in hexadecimal, with its line end */
};

struct httpd_writer {
    int epoll, wake_fd;
    pthread_t thread;
    struct buf out, record; /* the chunk now; with TLS, with its header */

    pthread_mutex_t lock; /* protects the members below */
    struct httpd_waker *first, *last;
    bool sleeps, stop;
};

static void writer_free(struct httpd_writer *w)
{
    if (w->epoll >= 0)
        close(w->epoll);
    if (w->wake_fd >= 0)
        close(w->wake_fd);
    pthread_mutex_destroy(&w->lock);
    buf_fini(&w->out);
    buf_fini(&w->record);
    free(w);
}

/* -- the queue -- */

static void wake_thread(struct httpd_writer *w)
{
    ssize_t n = write(w->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* fails only if a wake-up is already pending */
}

static void push(struct httpd_writer *w, struct httpd_waker *s)
{
    pthread_mutex_lock(&w->lock);
    bool wakes = w->sleeps;
    if (!s->queued) {
        s->queued = true;
        s->queue_next = NULL;
        s->queue_prev = w->last;
        *(w->last ? &w->last->queue_next : &w->first) = s;
        w->last = s;
        w->sleeps = false;
    }
    pthread_mutex_unlock(&w->lock);
    if (wakes)
        wake_thread(w);
}

/* Requires w->lock. */
static void unlink_queued(struct httpd_writer *w, struct httpd_waker *s)
{
    if (!s->queued)
        return;
    s->queued = false;
    *(s->queue_prev ? &s->queue_prev->queue_next : &w->first) = s->queue_next;
    *(s->queue_next ? &s->queue_next->queue_prev : &w->last) = s->queue_prev;
}

static struct httpd_waker *pop(struct httpd_writer *w)
{
    pthread_mutex_lock(&w->lock);
    struct httpd_waker *s = w->first;
    if (s)
        unlink_queued(w, s);
    pthread_mutex_unlock(&w->lock);
    return s;
}

void httpd_writer_wake(struct httpd_waker *s)
{
    push(atomic_load(&s->conn->listener->d->writer), s);
}

/* -- sending -- */

static gnutls_session_t session_of(const struct httpd_waker *s)
{
    if (!s->conn->listener->has_tls)
        return NULL;
    return MHD_get_connection_info(s->conn->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)
        ->tls_session;
}

/* Returns how many bytes were taken: fewer than n if the socket takes no more. -1: the
 * connection is lost. After GNUTLS_E_AGAIN the record is in gnutls's buffer, and its bytes
 * count when it is sent. */
static ssize_t send_tls(struct httpd_waker *s, gnutls_session_t session, const char *p,
                        size_t n)
{
    size_t at = 0;
    while (at < n) {
        ssize_t sent = s->flushes ? gnutls_record_send(session, NULL, 0)
                                  : gnutls_record_send(session, p + at, n - at);
        s->flushes = sent == GNUTLS_E_AGAIN || sent == GNUTLS_E_INTERRUPTED;
        if (s->flushes)
            break;
        if (sent <= 0)
            return -1;
        at += (size_t)sent;
    }
    return (ssize_t)at;
}

/* As send_tls. The head precedes the body. */
static ssize_t send_some(struct httpd_writer *w, struct httpd_waker *s, struct span head,
                         struct span body)
{
    gnutls_session_t session = session_of(s);
    struct iovec parts[2] = {{(void *)head.p, head.n}, {(void *)body.p, body.n}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (session && !head.n)
        return send_tls(s, session, body.p, body.n);
    if (session) {
        buf_clear(&w->record);
        buf_add_span(&w->record, head);
        buf_add_span(&w->record, body);
        return send_tls(s, session, w->record.p, w->record.n);
    }
    ssize_t n = sendmsg(s->conn->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return n;
}

/* The socket takes no more. */
static bool block(struct httpd_writer *w, struct httpd_waker *s)
{
    struct epoll_event event = {.events = EPOLLOUT | EPOLLONESHOT, .data.ptr = s};
    int op = s->polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    s->blocked = true;
    if (epoll_ctl(w->epoll, op, s->conn->fd, &event) != 0)
        return false;
    s->polled = true;
    return true;
}

/* False: the connection is lost. */
static bool send_rest(struct httpd_writer *w, struct httpd_waker *s)
{
    struct span rest = {s->rest.p + s->rest_at, s->rest.n - s->rest_at};
    ssize_t n = send_some(w, s, (struct span){NULL, 0}, rest);
    if (n < 0)
        return false;
    s->rest_at += (size_t)n;
    if ((size_t)n < rest.n)
        return block(w, s);
    buf_fini(&s->rest);
    s->rest_at = 0;
    return true;
}

/* Sends w->out as a chunk, and keeps what the socket does not take. */
static bool send_chunk(struct httpd_writer *w, struct httpd_waker *s)
{
    char text[HEAD];
    struct span head = {text, (size_t)snprintf(text, sizeof text, "%zx\r\n", w->out.n)};
    buf_adds(&w->out, "\r\n");
    ssize_t sent = send_some(w, s, head, buf_span(&w->out));
    if (sent < 0)
        return false;
    size_t n = (size_t)sent, all = head.n + w->out.n;
    if (n == all)
        return true;
    buf_reserve(&s->rest, all - n);
    if (n < head.n)
        buf_add(&s->rest, text + n, head.n - n);
    size_t at = n < head.n ? 0 : n - head.n;
    buf_add(&s->rest, w->out.p + at, w->out.n - at);
    return block(w, s);
}

/* -- a stream's turn -- */

/* Returns the connection to libmicrohttpd, whose thread may free the stream at once. */
static void give_back(struct httpd_writer *w, struct httpd_waker *s)
{
    struct MHD_Connection *mhd = s->conn->mhd;
    if (s->polled)
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, s->conn->fd, NULL);
    s->broken |= s->rest.n > 0;
    s->polled = s->blocked = false;
    pthread_mutex_lock(&s->lock);
    s->with_writer = false;
    s->wake_ms = INT64_MAX;
    pthread_mutex_lock(&w->lock);
    unlink_queued(w, s);
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_unlock(&s->lock);
    MHD_resume_connection(mhd);
}

static bool ends(const struct httpd_waker *s)
{
    return s->next == HTTPD_STREAM_END || s->next == HTTPD_STREAM_ABORT;
}

static bool is_over(const struct httpd_waker *s)
{
    return httpd_conn_is_closed(s->conn) ||
           atomic_load(&s->conn->listener->d->state) == HTTPD_STOPPING;
}

/* Waits for a wake-up. One that came since the start of `fill` has queued the stream. */
static void wait_for_wake(struct httpd_waker *s, int64_t now_ms)
{
    pthread_mutex_lock(&s->lock);
    if (!s->woken)
        s->wake_ms = httpd_stream_due(s, now_ms);
    pthread_mutex_unlock(&s->lock);
}

/* One chunk. False: the stream has ended, or the connection is lost. */
static bool fill_and_send(struct httpd_writer *w, struct httpd_waker *s)
{
    int64_t now = clock_mono_ms();
    struct httpd_conn *p = s->conn;
    if (ends(s) || !httpd_stream_running(s) ||
        !httpd_conn_enter(p, HTTPD_WORK, INT64_MAX))
        return false;
    buf_clear(&w->out);
    httpd_stream_fill(s, &w->out);
    atomic_store(&p->since_ms, now);
    if (w->out.n && !send_chunk(w, s)) {
        s->broken = true;
        return false;
    }
    if (s->blocked)
        return httpd_conn_enter(p, HTTPD_SEND, now + p->listener->conf.idle_ms);
    if (s->next != HTTPD_STREAM_WAIT)
        push(w, s);
    else if (atomic_load(&p->hung_up)) /* possibly before the stream was opened */
        return false;
    else
        wait_for_wake(s, now);
    return true;
}

static void serve(struct httpd_writer *w, struct httpd_waker *s)
{
    bool goes_on = !is_over(s);
    if (s->blocked && goes_on)
        return; /* woken meanwhile: it is filled anyway when the socket takes more */
    if (goes_on && s->rest.n) {
        goes_on = send_rest(w, s);
        atomic_store(&s->conn->since_ms, clock_mono_ms());
        if (goes_on && s->blocked)
            return;
    }
    if (!goes_on || !fill_and_send(w, s))
        give_back(w, s);
}

/* -- the thread -- */

/* Queues the streams whose sockets take more. Waits for them, or for a wake-up, if no stream
 * is queued. */
static void look(struct httpd_writer *w)
{
    struct epoll_event events[EVENTS];
    pthread_mutex_lock(&w->lock);
    w->sleeps = !w->first && !w->stop;
    int wait_ms = w->sleeps ? -1 : 0;
    pthread_mutex_unlock(&w->lock);
    int n = epoll_wait(w->epoll, events, EVENTS, wait_ms);
    pthread_mutex_lock(&w->lock);
    w->sleeps = false;
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < n; i++) {
        struct httpd_waker *s = events[i].data.ptr;
        uint64_t wakes;
        if (s) {
            s->blocked = false;
            push(w, s);
        } else if (read(w->wake_fd, &wakes, sizeof wakes) < 0) {
            continue; /* another wake-up follows */
        }
    }
}

static bool is_stopped(struct httpd_writer *w)
{
    pthread_mutex_lock(&w->lock);
    bool stopped = w->stop && !w->first;
    pthread_mutex_unlock(&w->lock);
    return stopped;
}

static void *run(void *arg)
{
    struct httpd_writer *w = arg;
    struct httpd_waker *s;
    while (!is_stopped(w)) {
        look(w);
        for (int i = 0; i < TURN && (s = pop(w)); i++)
            serve(w, s);
        sched_yield(); /* a thread that became ready may otherwise wait for milliseconds */
    }
    return NULL;
}

static struct httpd_writer *writer_new(void)
{
    struct httpd_writer *w = xcalloc(1, sizeof *w);
    struct epoll_event event = {.events = EPOLLIN};
    pthread_mutex_init(&w->lock, NULL);
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll < 0 || w->wake_fd < 0 ||
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake_fd, &event) != 0 ||
        pthread_create(&w->thread, NULL, run, w) != 0) {
        writer_free(w);
        return NULL;
    }
    pthread_setname_np(w->thread, "streams");
    return w;
}

/* All listeners share the writer. The first direct stream starts it, in a thread of
 * libmicrohttpd, whose signal mask and scheduling it inherits. */
static struct httpd_writer *writer_of(struct httpd *d)
{
    struct httpd_writer *w = atomic_load(&d->writer);
    if (w)
        return w;
    pthread_mutex_lock(&d->lock);
    w = atomic_load(&d->writer);
    if (!w && atomic_load(&d->state) == HTTPD_RUNNING) {
        w = writer_new();
        atomic_store(&d->writer, w);
    }
    pthread_mutex_unlock(&d->lock);
    return w;
}

bool httpd_writer_take(struct httpd_waker *s)
{
    struct httpd_writer *w = writer_of(s->conn->listener->d);
    const int on = 1;
    if (!w)
        return false;
    /* A chunk is one segment or more, and there may be none for a long time. */
    setsockopt(s->conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pthread_mutex_lock(&s->lock);
    bool taken = httpd_stream_running(s);
    if (taken) {
        s->with_writer = true;
        MHD_suspend_connection(s->conn->mhd);
        push(w, s);
    }
    pthread_mutex_unlock(&s->lock);
    return taken;
}

void httpd_writer_stop(struct httpd *d)
{
    struct httpd_writer *w = atomic_load(&d->writer);
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_mutex_unlock(&w->lock);
    wake_thread(w);
    pthread_join(w->thread, NULL);
    atomic_store(&d->writer, NULL);
    writer_free(w);
}
