/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/grpcd_priv.h"

/*
 * Each round reads input and runs handlers, moves the output of calls to their streams,
 * checks deadlines, and writes. A connection whose socket blocks is not read, so that a
 * client that does not read cannot queue more output.
 */

enum {
    ACCEPT_BURST = 16,
    ACCEPT_RETRY_MS = 100,
    READ_BURST = 4,
    READ_BYTES = 64 * 1024,
    WARN_MS = 10 * 1000,
    WAKE = 0, /* indexes of loop.fds */
    LISTENER = 1,
    FIRST_CONN = 2,
};

struct loop {
    struct grpcd *d;
    enum grpcd_state state; /* at the start of the round */
    struct pollfd *fds;     /* wake_fd, the listener, the connections */
    size_t cap;
    int64_t next_ms;   /* the next deadline */
    int64_t accept_ms; /* no accept before this time, after a failure */
    uint8_t bytes[READ_BYTES];
};

static void warn(struct loop *l, int64_t now, const char *msg, int64_t uid)
{
    if (now < l->d->warn_ms)
        return;
    l->d->warn_ms = now + WARN_MS;
    log_warn("grpcd", msg, LOG_S("socket", l->d->socket.path), LOG_I("uid", uid));
}

static void set_connections(struct grpcd *d)
{
    pthread_mutex_lock(&d->lock);
    d->stats.connections = d->n_conns;
    pthread_mutex_unlock(&d->lock);
}

static void close_conn(struct grpcd *d, struct grpcd_conn **link)
{
    struct grpcd_conn *c = *link;
    *link = c->next;
    close(c->fd);
    d->n_conns--;
    grpcd_conn_free(c);
    set_connections(d);
}

static void write_conn(struct grpcd_conn *c, int64_t now)
{
    bool moved = false;
    c->now_ms = now;
    enum grpc_io rc = grpc_io_write(&c->out, c->session, c->fd, &moved);
    if (moved || !c->is_blocked)
        c->moved_ms = now;
    c->is_blocked = rc == GRPC_IO_BLOCKED;
    if (rc == GRPC_IO_BROKEN)
        c->is_broken = true;
}

/* Closes the connection that is idle for the longest time. False: none is idle. */
static bool evict_idle_conn(struct grpcd *d, int64_t now)
{
    struct grpcd_conn **idle = NULL;
    for (struct grpcd_conn **p = &d->conns; *p; p = &(*p)->next)
        if (!(*p)->n_streams && (!idle || (*p)->quiet_ms < (*idle)->quiet_ms))
            idle = p;
    if (!idle)
        return false;
    grpcd_conn_go_away(*idle, NGHTTP2_NO_ERROR);
    write_conn(*idle, now);
    close_conn(d, idle);
    return true;
}

static bool is_allowed(struct loop *l, int fd, int64_t now)
{
    struct ucred peer = {0};
    socklen_t n = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0)
        return false;
    if (peer.uid != 0 && peer.uid != geteuid()) {
        warn(l, now, "connection: rejected, the peer is another user", peer.uid);
        return false;
    }
    if (l->d->n_conns >= l->d->limits.connections && !evict_idle_conn(l->d, now)) {
        warn(l, now, "connection: rejected, too many connections", peer.uid);
        return false;
    }
    return true;
}

static void add_conn(struct loop *l, int fd, int64_t now)
{
    struct grpcd *d = l->d;
    if (!is_allowed(l, fd, now)) {
        grpcd_count_rejected(d);
        close(fd);
        return;
    }
    struct grpcd_conn *c = grpcd_conn_new(d, now);
    c->fd = fd;
    c->next = d->conns;
    d->conns = c;
    d->n_conns++;
    set_connections(d);
}

static void accept_conns(struct loop *l, int64_t now)
{
    for (int i = 0; i < ACCEPT_BURST; i++) {
        int fd = accept4(l->d->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            add_conn(l, fd, now);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            if (errno != EAGAIN)
                l->accept_ms = now + ACCEPT_RETRY_MS;
            return;
        }
    }
}

static void read_conn(struct loop *l, struct grpcd_conn *c, int64_t now)
{
    for (int i = 0; i < READ_BURST && !c->is_broken; i++) {
        size_t n = 0;
        enum grpc_io rc = grpc_io_read(c->fd, l->bytes, sizeof l->bytes, &n);
        if (rc == GRPC_IO_BROKEN)
            c->is_broken = true;
        if (rc != GRPC_IO_DONE)
            return;
        grpcd_conn_feed(c, l->bytes, n, now);
    }
}

/* To be called before poll: from now on, grpcd_wake_locked writes to wake_fd. Returns
 * whether there already is something to do. */
static bool prepare_sleep(struct loop *l)
{
    struct grpcd *d = l->d;
    pthread_mutex_lock(&d->lock);
    bool is_due = d->dirty || d->state != l->state;
    d->is_awake = is_due;
    pthread_mutex_unlock(&d->lock);
    return is_due;
}

static size_t prepare(struct loop *l, int64_t now)
{
    struct grpcd *d = l->d;
    size_t n = FIRST_CONN;
    bool is_paused = d->socket.fd < 0 || now < l->accept_ms;
    MEM_GROW(l->fds, l->cap, FIRST_CONN + d->n_conns);
    l->fds[WAKE] = (struct pollfd){.fd = d->wake_fd, .events = POLLIN};
    l->fds[LISTENER] =
        (struct pollfd){.fd = is_paused ? -1 : d->socket.fd, .events = POLLIN};
    for (struct grpcd_conn *c = d->conns; c; c = c->next)
        l->fds[n++] =
            (struct pollfd){.fd = c->fd, .events = c->is_blocked ? POLLOUT : POLLIN};
    if (now < l->accept_ms && l->next_ms > l->accept_ms)
        l->next_ms = l->accept_ms;
    return n;
}

static void poll_events(struct loop *l)
{
    int64_t now = clock_mono_ms(), wait = 0;
    size_t n = prepare(l, now);
    if (!prepare_sleep(l) && l->next_ms > now)
        wait = l->next_ms - now;
    if (poll(l->fds, (nfds_t)n, wait > INT32_MAX ? -1 : (int)wait) < 0)
        for (size_t i = 0; i < n; i++)
            l->fds[i].revents = 0;
    pthread_mutex_lock(&l->d->lock);
    l->d->is_awake = true;
    l->state = l->d->state;
    pthread_mutex_unlock(&l->d->lock);
    uint64_t wakes;
    if (l->fds[WAKE].revents && read(l->d->wake_fd, &wakes, sizeof wakes) < 0)
        return; /* cannot happen: it is readable */
}

/* The connections are in the order in which they were polled. */
static void dispatch_events(struct loop *l, int64_t now)
{
    size_t i = FIRST_CONN;
    for (struct grpcd_conn *c = l->d->conns; c; c = c->next, i++) {
        if (l->fds[i].revents && c->is_blocked)
            write_conn(c, now);
        else if (l->fds[i].revents)
            read_conn(l, c, now);
    }
    if (l->fds[LISTENER].revents)
        accept_conns(l, now);
    grpcd_call_flush(l->d, now);
}

static void drain(struct grpcd *d, int64_t now)
{
    grpcd_socket_close(&d->socket);
    for (struct grpcd_conn *c = d->conns; c; c = c->next)
        grpcd_conn_drain(c, now);
}

/* Checks deadlines, writes output, and closes finished connections. */
static void update_conns(struct loop *l, int64_t now)
{
    struct grpcd *d = l->d;
    l->next_ms = INT64_MAX;
    for (struct grpcd_conn **link = &d->conns; *link;) {
        struct grpcd_conn *c = *link;
        int64_t at = grpcd_conn_tick(c, now);
        if (!c->is_blocked && !c->is_broken)
            write_conn(c, now);
        int64_t stalled = c->moved_ms + d->limits.stall_ms;
        if (c->is_broken || (c->is_blocked ? now >= stalled : grpcd_conn_is_done(c))) {
            close_conn(d, link);
            continue;
        }
        if (c->is_blocked && stalled < at)
            at = stalled;
        if (at < l->next_ms)
            l->next_ms = at;
        link = &c->next;
    }
}

static void set_drained(struct grpcd *d)
{
    pthread_mutex_lock(&d->lock);
    d->is_drained = true;
    pthread_cond_broadcast(&d->drained);
    pthread_mutex_unlock(&d->lock);
}

void *grpcd_loop(void *arg)
{
    struct loop *l = xcalloc(1, sizeof *l);
    struct grpcd *d = l->d = arg;
    l->next_ms = INT64_MAX;
    while (l->state != GRPCD_STOPPING) {
        poll_events(l);
        int64_t now = clock_mono_ms();
        dispatch_events(l, now);
        if (l->state == GRPCD_DRAINING)
            drain(d, now);
        update_conns(l, now);
        if (l->state == GRPCD_DRAINING && !d->n_conns)
            set_drained(d);
    }
    while (d->conns)
        close_conn(d, &d->conns);
    free(l->fds);
    free(l);
    return NULL;
}
