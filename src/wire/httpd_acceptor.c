/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/*
 * The acceptor sleeps until the next deadline, at most for the shortest limit: a deadline
 * that a connection sets meanwhile is never earlier. So an accept needs no look at the
 * other connections, unless the listener is full.
 */

enum {
    DRAIN_GRACE_MS = 300, /* a drain closes connections idle for this long */
    HANGUPS = 64,         /* events per round */
    FIRST_LISTENER = 2,
};

void httpd_acceptor_wake(struct httpd *d)
{
    ssize_t n = write(d->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* fails only if a wake-up is already pending */
}

void httpd_acceptor_check(struct httpd *d)
{
    atomic_store(&d->check_now, true);
    httpd_acceptor_wake(d);
}

void httpd_acceptor_check_soon(struct httpd *d)
{
    int64_t at = clock_mono_ms() + HTTPD_ROUND_MIN_MS;
    if (d->check_ms > at)
        d->check_ms = at;
}

static uint64_t bytes_acked(int fd)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n);
    return info.tcpi_bytes_acked;
}

/* The deadline `due` has passed: closes the connection, unless its deadline was changed
 * meanwhile or the client has read some of the reply. */
static void expire(struct httpd_conn *p, uint64_t due, int64_t now)
{
    if (httpd_conn_deadline_phase(due) == HTTPD_SEND) {
        uint64_t acked = bytes_acked(p->fd);
        if (acked != p->acked) {
            p->acked = acked;
            int64_t later = now + p->listener->conf.idle_ms;
            atomic_compare_exchange_strong(&p->due, &due,
                                           httpd_conn_deadline(HTTPD_SEND, later));
            return;
        }
    }
    if (!atomic_compare_exchange_strong(&p->due, &due,
                                        httpd_conn_deadline(HTTPD_TIMED_OUT, INT64_MAX)))
        return;
    atomic_fetch_add(&p->listener->d->timed_out, 1);
    shutdown(p->fd, SHUT_RDWR);
}

/* A drain closes connections that were idle for a while; one in use is closed with its
 * next reply. Shutting down the receiving side only lets a request that has arrived be
 * served. */
static void close_if_idle(struct httpd_conn *p, uint64_t due, int64_t now)
{
    enum httpd_phase phase = httpd_conn_deadline_phase(due);
    if (phase != HTTPD_IDLE && phase != HTTPD_NEW)
        return;
    int unread = 0;
    if (now - atomic_load(&p->since_ms) < DRAIN_GRACE_MS ||
        ioctl(p->fd, FIONREAD, &unread) != 0 || unread)
        return;
    if (atomic_compare_exchange_strong(&p->due, &due,
                                       httpd_conn_deadline(HTTPD_CLOSING, INT64_MAX)))
        shutdown(p->fd, SHUT_RD);
}

/* The client has closed its sending side: wakes libmicrohttpd, which reads the rest and
 * the end of file. This is repeated every round, because with epoll libmicrohttpd takes a
 * short read for the end of the available data and may miss the event. A request in work
 * is finished first. */
static bool close_if_hung_up(struct httpd_conn *p, enum httpd_phase phase)
{
    bool reading = phase == HTTPD_NEW || phase == HTTPD_REQUEST || phase == HTTPD_IDLE;
    if (phase != HTTPD_CLOSING && !(reading && atomic_load(&p->hung_up)))
        return false;
    shutdown(p->fd, SHUT_RD);
    return true;
}

/* Checks one connection. Returns the time of the next check. */
static int64_t check_conn(struct httpd_conn *p, int64_t now, bool draining)
{
    uint64_t due = atomic_load(&p->due);
    if (httpd_conn_is_closed(p)) { /* repeated, as in close_if_hung_up */
        shutdown(p->fd, SHUT_RDWR);
        return now;
    }
    if (httpd_conn_deadline_ms(due) <= now)
        expire(p, due, now);
    else if (close_if_hung_up(p, httpd_conn_deadline_phase(due)))
        return now;
    else if (draining)
        close_if_idle(p, due, now);
    int64_t at = httpd_conn_deadline_ms(atomic_load(&p->due));
    if (!p->stream || p->listener->conf.mode == HTTPD_THREADS)
        return at;
    int64_t wake = httpd_stream_wake_due(p->stream, now);
    return wake < at ? wake : at;
}

/* Checks all connections. Returns how long to sleep in milliseconds, or -1: forever.
 * httpd.lock is held. */
static int64_t check_conns(struct httpd *d, int64_t now)
{
    bool draining = atomic_load(&d->state) != HTTPD_RUNNING;
    int64_t wait = d->limits.first_request_ms;
    for (size_t i = 0; i < d->n_listeners; i++) {
        const struct httpd_listener_config *conf = &d->listeners[i]->conf;
        int64_t limit = conf->mode == HTTPD_EVENTS && conf->idle_ms > HTTPD_STREAM_WAIT_MS
                            ? HTTPD_STREAM_WAIT_MS
                            : conf->idle_ms;
        if (wait > limit)
            wait = limit;
        if (d->listeners[i]->leaving)
            wait = HTTPD_ROUND_MIN_MS;
    }
    for (struct httpd_conn *p = d->conns; p; p = p->next) {
        int64_t due = check_conn(p, now, draining);
        if (due - now < wait)
            wait = due - now;
    }
    if (!d->connections)
        return -1;
    if (draining || wait < HTTPD_ROUND_MIN_MS)
        return HTTPD_ROUND_MIN_MS;
    return wait;
}

static struct httpd_listener *listener_at(struct httpd *d, size_t i)
{
    pthread_mutex_lock(&d->lock);
    struct httpd_listener *listener = i < d->n_listeners ? d->listeners[i] : NULL;
    pthread_mutex_unlock(&d->lock);
    return listener;
}

/* Accepts the connections in the backlog, so that they are not reset, and closes the
 * listening sockets. */
static void close_listeners(struct httpd *d)
{
    struct httpd_listener *listener;
    for (size_t i = 0; (listener = listener_at(d, i)); i++) {
        httpd_accept_all(listener);
        close(listener->fd);
        listener->fd = -1;
    }
    pthread_mutex_lock(&d->lock);
    d->closed = true;
    httpd_stream_wake_all(d);
    pthread_cond_broadcast(&d->gone);
    pthread_mutex_unlock(&d->lock);
}

/* Handles the connections whose client has closed its sending side. */
static void mark_hangups(struct httpd *d)
{
    struct epoll_event events[HANGUPS];
    pthread_mutex_lock(&d->lock); /* keeps the connections alive */
    int n = epoll_wait(d->hup_fd, events, HANGUPS, 0);
    for (int i = 0; i < n; i++) {
        struct httpd_conn *p = events[i].data.ptr;
        epoll_ctl(d->hup_fd, EPOLL_CTL_DEL, p->fd, NULL);
        atomic_store(&p->hung_up, true);
        if (p->stream)
            httpd_stream_wake(p->stream);
        close_if_hung_up(p, httpd_conn_deadline_phase(atomic_load(&p->due)));
    }
    httpd_acceptor_check_soon(d);
    pthread_mutex_unlock(&d->lock);
}

/* What the acceptor polls: wake_fd, hup_fd, listeners, lingering connections. */
struct round {
    struct pollfd *fds;
    size_t n, cap;
    size_t first_linger;
    /* Of fds[FIRST_LISTENER..first_linger). */
    struct httpd_listener **listeners;
    size_t cap_listeners;
};

static void add_fd(struct round *r, int fd, short events)
{
    MEM_GROW(r->fds, r->cap, r->n + 1);
    r->fds[r->n++] = (struct pollfd){.fd = fd, .events = events};
}

/* The shorter wait; -1: forever. */
static int64_t sooner(int64_t wait, int64_t left)
{
    if (wait >= 0 && wait <= left)
        return wait;
    return left > 0 ? left : 0;
}

/* Adds its descriptor, or -1, which poll ignores, while it accepts nothing. Returns the
 * time at which it accepts again. httpd.lock is held. */
static int64_t add_listener(struct round *r, struct httpd_listener *listener, int64_t now)
{
    bool is_full = listener->open >= listener->conf.connections + HTTPD_SPARE;
    bool is_late = listener->retry_ms > now;
    add_fd(r, is_late || is_full ? -1 : listener->fd, POLLIN);
    return is_late ? listener->retry_ms : INT64_MAX;
}

/* httpd.lock is held. */
static int64_t prepare(struct httpd *d, struct round *r, int64_t now)
{
    int64_t wait = d->check_ms - now;
    if (atomic_exchange(&d->check_now, false) || wait <= 0 ||
        atomic_load(&d->state) != HTTPD_RUNNING) {
        wait = check_conns(d, now);
        d->check_ms = wait < 0 ? now : now + wait;
    }
    r->n = 0;
    add_fd(r, d->wake_fd, POLLIN);
    add_fd(r, d->hup_fd, POLLIN);
    MEM_GROW(r->listeners, r->cap_listeners, d->n_listeners);
    for (size_t i = 0; i < d->n_listeners; i++) {
        r->listeners[i] = d->listeners[i];
        wait = sooner(wait, add_listener(r, d->listeners[i], now) - now);
    }
    r->first_linger = r->n;
    for (size_t i = 0; i < d->n_lingers; i++) {
        wait = sooner(wait, d->linger[i].until_ms - now);
        add_fd(r, d->linger[i].fd, POLLIN);
    }
    return wait;
}

static void run_round(struct httpd *d, struct round *r)
{
    pthread_mutex_lock(&d->lock);
    int64_t wait = prepare(d, r, clock_mono_ms());
    pthread_mutex_unlock(&d->lock);
    poll(r->fds, (nfds_t)r->n, wait > INT32_MAX ? INT32_MAX : (int)wait);
    uint64_t wakes;
    ssize_t got = read(d->wake_fd, &wakes, sizeof wakes);
    (void)got;
    if (r->fds[1].revents)
        mark_hangups(d);
    for (size_t i = FIRST_LISTENER; i < r->first_linger; i++)
        if (r->fds[i].revents)
            httpd_accept_some(r->listeners[i - FIRST_LISTENER]);
    if (r->n > r->first_linger)
        httpd_linger_all(d);
}

static void *acceptor_run(void *arg)
{
    struct httpd *d = arg;
    struct round r = {0};
    for (;;) {
        int state = atomic_load(&d->state);
        if (state == HTTPD_STOPPING)
            break;
        if (state == HTTPD_DRAINING && !d->closed)
            close_listeners(d);
        run_round(d, &r);
    }
    free(r.fds);
    free(r.listeners);
    return NULL;
}

int httpd_acceptor_start(struct httpd *d, struct err *err)
{
    if (d->has_acceptor)
        return 0;
    if (d->wake_fd < 0)
        d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->hup_fd < 0)
        d->hup_fd = epoll_create1(EPOLL_CLOEXEC);
    if (d->wake_fd < 0 || d->hup_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s", strerrordesc_np(errno));
    int rc = pthread_create(&d->acceptor, NULL, acceptor_run, d);
    if (rc)
        return err_set(err, ERR_UNAVAILABLE, "pthread_create: %s", strerrordesc_np(rc));
    pthread_setname_np(d->acceptor, "httpd");
    d->has_acceptor = true;
    return 0;
}
