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
 * The keeper sleeps until the nearest deadline, but no longer than the shortest limit: a
 * deadline that is set while it sleeps is not before that.
 */

enum {
    ACCEPT_BURST = 64, /* per listener and round, so that none starves the others */
    ACCEPT_RETRY_MS = 100,
    ACCEPT_WARN_MS = 60 * 1000,
    DRAIN_GRACE_MS = 300, /* quiet for so long, a connection is ended by a drain */
    ROUND_MIN_MS = 20,
    HANGUPS = 64, /* per round */
    FIRST_DOOR = 2,
};

void httpd_acceptor_wake(struct httpd *d)
{
    ssize_t n = write(d->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* fails only when it is awake already */
}

/* A client that vanished is noticed after a minute and a half, also by a stream that has
 * nothing to say. */
static void set_keepalive(int fd)
{
    const int on = 1, idle_s = 60, interval_s = 10, probes = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* Only the keeper adds connections, so what it finds room for stays free. */
static bool has_room(struct httpd_listener *door)
{
    pthread_mutex_lock(&door->d->lock);
    bool room = door->open < door->conf.connections;
    pthread_mutex_unlock(&door->d->lock);
    return room;
}

static void count(struct httpd_listener *door, int n)
{
    pthread_mutex_lock(&door->d->lock);
    door->open += (unsigned)n;
    door->d->connections += (unsigned)n;
    pthread_mutex_unlock(&door->d->lock);
}

/* After a failed accept: is it worth trying the next one at once? */
static bool accept_again(struct httpd_listener *door, int error)
{
    if (error == EAGAIN)
        return false;
    if (error == ECONNABORTED || error == EPROTO || error == EINTR || error == EPERM)
        return true; /* that connection has gone */
    int64_t now = clock_mono_ms();
    door->retry_ms = now + ACCEPT_RETRY_MS;
    if (now >= door->warned_ms) {
        log_warn("httpd", "cannot accept connections", LOG_S("listener", door->conf.name),
                 LOG_S("err", strerrordesc_np(error)));
        door->warned_ms = now + ACCEPT_WARN_MS;
    }
    return false;
}

/* True when there may be more. */
static bool accept_one(struct httpd_listener *door)
{
    struct sockaddr_storage addr;
    socklen_t n = sizeof addr;
    if (!has_room(door))
        return false;
    int fd =
        accept4(door->fd, (struct sockaddr *)&addr, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return accept_again(door, errno);
    set_keepalive(fd);
    count(door, 1);
    if (MHD_add_connection(door->mhd, fd, (struct sockaddr *)&addr, n) != MHD_YES)
        count(door, -1);
    return true;
}

static uint64_t bytes_acked(int fd)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n);
    return info.tcpi_bytes_acked;
}

/* The deadline that was seen has passed: cuts the connection off unless it has moved. */
static void expire(struct httpd_conn *p, uint64_t due, int64_t now)
{
    if (httpd_conn_deadline_phase(due) == HTTPD_SEND) {
        uint64_t acked = bytes_acked(p->fd);
        if (acked != p->acked) {
            p->acked = acked;
            int64_t later = now + p->door->d->limits.idle_ms;
            atomic_compare_exchange_strong(&p->due, &due,
                                           httpd_conn_deadline(HTTPD_SEND, later));
            return;
        }
    }
    if (!atomic_compare_exchange_strong(&p->due, &due,
                                        httpd_conn_deadline(HTTPD_TIMED_OUT, INT64_MAX)))
        return;
    atomic_fetch_add(&p->door->d->timed_out, 1);
    shutdown(p->fd, SHUT_RDWR);
}

/* A drain ends a connection that has been quiet for a while: one that is in use carries
 * its next request soon, and is closed with the reply. What has arrived is still read
 * after this, and answered when it is whole. */
static void poke(struct httpd_conn *p, uint64_t due, int64_t now)
{
    const struct httpd_limits *limits = &p->door->d->limits;
    bool idle = httpd_conn_deadline_phase(due) == HTTPD_IDLE;
    if (!idle && httpd_conn_deadline_phase(due) != HTTPD_NEW)
        return;
    int64_t since =
        httpd_conn_deadline_ms(due) - (idle ? limits->idle_ms : limits->first_request_ms);
    int unread = 0;
    if (now - since < DRAIN_GRACE_MS || ioctl(p->fd, FIONREAD, &unread) != 0 || unread)
        return;
    if (atomic_compare_exchange_strong(&p->due, &due,
                                       httpd_conn_deadline(HTTPD_CLOSING, INT64_MAX)))
        shutdown(p->fd, SHUT_RD);
}

/* The client sends no more: libmicrohttpd is made to look again, reads what is there, and
 * finds the end. Once may not be enough: with epoll it takes a short read for the end of
 * what there is, also when this came in between. A request that is being answered is
 * answered first. */
static bool is_going(struct httpd_conn *p, enum httpd_phase phase)
{
    bool reading = phase == HTTPD_NEW || phase == HTTPD_REQUEST || phase == HTTPD_IDLE;
    if (phase != HTTPD_CLOSING && !(reading && atomic_load(&p->hung)))
        return false;
    shutdown(p->fd, SHUT_RD);
    return true;
}

/* When to look again. */
static int64_t look_at(struct httpd_conn *p, int64_t now, bool draining)
{
    uint64_t due = atomic_load(&p->due);
    if (httpd_conn_deadline_ms(due) <= now)
        expire(p, due, now);
    else if (is_going(p, httpd_conn_deadline_phase(due)))
        return now;
    else if (draining)
        poke(p, due, now);
    int64_t at = httpd_conn_deadline_ms(atomic_load(&p->due));
    if (!p->stream || p->door->conf.mode == HTTPD_THREADS)
        return at;
    int64_t nudge = httpd_stream_wake_due(p->stream, now);
    return nudge < at ? nudge : at;
}

/* How long to sleep, or -1. httpd.lock is held. */
static int64_t look_at_all(struct httpd *d, int64_t now)
{
    bool draining = atomic_load(&d->state) != HTTPD_RUNNING;
    int64_t wait = d->limits.idle_ms;
    if (wait > d->limits.first_request_ms)
        wait = d->limits.first_request_ms;
    for (size_t i = 0; i < d->n_doors; i++)
        if (d->doors[i]->conf.mode == HTTPD_EVENTS && wait > HTTPD_STREAM_WAIT_MS)
            wait = HTTPD_STREAM_WAIT_MS;
    for (struct httpd_conn *p = d->peers; p; p = p->next) {
        int64_t due = look_at(p, now, draining);
        if (due - now < wait)
            wait = due - now;
    }
    if (!d->connections)
        return -1;
    if (draining || wait < ROUND_MIN_MS)
        return ROUND_MIN_MS;
    return wait;
}

static struct httpd_listener *door_at(struct httpd *d, size_t i)
{
    pthread_mutex_lock(&d->lock);
    struct httpd_listener *door = i < d->n_doors ? d->doors[i] : NULL;
    pthread_mutex_unlock(&d->lock);
    return door;
}

/* Takes what waits in the backlog, so that it is not reset, and closes the doors. */
static void close_doors(struct httpd *d)
{
    struct httpd_listener *door;
    for (size_t i = 0; (door = door_at(d, i)); i++) {
        while (accept_one(door))
            ;
        close(door->fd);
        door->fd = -1;
    }
    pthread_mutex_lock(&d->lock);
    d->closed = true;
    httpd_stream_wake_all(d);
    pthread_cond_broadcast(&d->gone);
    pthread_mutex_unlock(&d->lock);
}

/* Marks the clients that send no more; the next round looks at them. */
static void notice_hangups(struct httpd *d)
{
    struct epoll_event events[HANGUPS];
    pthread_mutex_lock(&d->lock); /* none of these can go meanwhile */
    int n = epoll_wait(d->hup_fd, events, HANGUPS, 0);
    for (int i = 0; i < n; i++) {
        struct httpd_conn *p = events[i].data.ptr;
        epoll_ctl(d->hup_fd, EPOLL_CTL_DEL, p->fd, NULL);
        atomic_store(&p->hung, true);
        if (p->stream)
            httpd_wake(p->stream);
    }
    pthread_mutex_unlock(&d->lock);
}

/* What the keeper polls: wake_fd, hup_fd, the doors, the lingering connections. */
struct round {
    struct pollfd *fds;
    size_t n, cap;
    size_t first_linger;
    struct httpd_listener **doors; /* of the fds from FIRST_DOOR to first_linger */
    size_t cap_doors;
};

static void add_fd(struct round *r, int fd, short events)
{
    MEM_GROW(r->fds, r->cap, r->n + 1);
    r->fds[r->n++] = (struct pollfd){.fd = fd, .events = events};
}

/* httpd.lock is held. */
static int64_t prepare(struct httpd *d, struct round *r, int64_t now)
{
    int64_t wait = look_at_all(d, now);
    r->n = 0;
    add_fd(r, d->wake_fd, POLLIN);
    add_fd(r, d->hup_fd, POLLIN);
    MEM_GROW(r->doors, r->cap_doors, d->n_doors);
    size_t n = 0;
    for (size_t i = 0; i < d->n_doors; i++) {
        struct httpd_listener *door = d->doors[i];
        if (door->fd < 0 || door->open >= door->conf.connections)
            continue;
        if (door->retry_ms > now) {
            if (wait < 0 || wait > ACCEPT_RETRY_MS)
                wait = ACCEPT_RETRY_MS;
            continue;
        }
        r->doors[n++] = door;
        add_fd(r, door->fd, POLLIN);
    }
    r->first_linger = r->n;
    for (size_t i = 0; i < d->n_lingers; i++) {
        int64_t left = d->linger[i].until_ms - now;
        if (wait < 0 || wait > left)
            wait = left > 0 ? left : 0;
        add_fd(r, d->linger[i].fd, POLLIN);
    }
    return wait;
}

/* Reads and forgets. False when the connection is to be closed. */
static bool linger_on(struct httpd_linger *l, int64_t now)
{
    if (now >= l->until_ms)
        return false;
    ssize_t n = recv(l->fd, NULL, l->left, MSG_TRUNC | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    l->left -= (size_t)n;
    return n > 0 && l->left > 0;
}

static void linger_all(struct httpd *d)
{
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&d->lock);
    size_t n = 0;
    for (size_t i = 0; i < d->n_lingers; i++) {
        if (linger_on(&d->linger[i], now))
            d->linger[n++] = d->linger[i];
        else
            close(d->linger[i].fd);
    }
    d->n_lingers = n;
    pthread_mutex_unlock(&d->lock);
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
        notice_hangups(d);
    for (size_t i = FIRST_DOOR; i < r->first_linger; i++)
        if (r->fds[i].revents)
            for (int n = 0; n < ACCEPT_BURST && accept_one(r->doors[i - FIRST_DOOR]); n++)
                ;
    if (r->n > r->first_linger)
        linger_all(d);
}

static void *keep(void *arg)
{
    struct httpd *d = arg;
    struct round r = {0};
    for (;;) {
        int state = atomic_load(&d->state);
        if (state == HTTPD_STOPPING)
            break;
        if (state == HTTPD_DRAINING && !d->closed)
            close_doors(d);
        run_round(d, &r);
    }
    free(r.fds);
    free(r.doors);
    return NULL;
}

int httpd_acceptor_start(struct httpd *d, struct err *err)
{
    if (d->has_keeper)
        return 0;
    if (d->wake_fd < 0)
        d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->hup_fd < 0)
        d->hup_fd = epoll_create1(EPOLL_CLOEXEC);
    if (d->wake_fd < 0 || d->hup_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s", strerrordesc_np(errno));
    int rc = pthread_create(&d->keeper, NULL, keep, d);
    if (rc)
        return err_set(err, ERR_UNAVAILABLE, "thread: %s", strerrordesc_np(rc));
    pthread_setname_np(d->keeper, "httpd");
    d->has_keeper = true;
    return 0;
}
