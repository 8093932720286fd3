/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Connections and the acceptor, one thread for all listeners: it accepts, passes
 * connections to libmicrohttpd, closes those whose deadline has passed, closes others of a
 * full listener in favor of new ones, and lingers. Phase and deadline of a connection are
 * one atomic word, which the acceptor and the connection's thread change at the same time.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/* -- Lingering close -- */

enum { LINGER_MS = 1000 };

static void begin_linger(struct httpd *d, int fd)
{
    if (atomic_load(&d->state) == HTTPD_STOPPING)
        return;
    if (d->n_lingers == HTTPD_LINGERS) {
        close(d->linger[0].fd);
        memmove(d->linger, d->linger + 1, --d->n_lingers * sizeof *d->linger);
    }
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return;
    shutdown(copy, SHUT_WR);
    d->linger[d->n_lingers++] = (struct httpd_linger){
        .fd = copy, .until_ms = clock_mono_ms() + LINGER_MS, .left = HTTPD_DISCARD_MAX};
}

/* Reads and discards. False: close the connection now. */
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

/* -- A connection: phase, deadline, accounting -- */

enum {
    PHASE_BITS = 3,
    PAUSE_MS = 2, /* shortest pause between two requests that are not pipelined */
};

static uint64_t deadline_of(enum httpd_phase phase, int64_t due_ms)
{
    const int64_t never = INT64_MAX >> PHASE_BITS;
    return (uint64_t)(due_ms < never ? due_ms : never) << PHASE_BITS | phase;
}

enum httpd_phase httpd_conn_deadline_phase(uint64_t due)
{
    return (enum httpd_phase)(due & ((1 << PHASE_BITS) - 1));
}

int64_t httpd_conn_deadline_ms(uint64_t due)
{
    return (int64_t)(due >> PHASE_BITS);
}

bool httpd_conn_enter(struct httpd_conn *p, enum httpd_phase phase, int64_t due_ms)
{
    uint64_t before = atomic_exchange(&p->due, deadline_of(phase, due_ms));
    if (httpd_conn_deadline_phase(before) != HTTPD_CLOSED)
        return true;
    atomic_store(&p->due, before);
    return false;
}

bool httpd_conn_is_closed(const struct httpd_conn *p)
{
    return httpd_conn_deadline_phase(atomic_load(&p->due)) == HTTPD_CLOSED;
}

/* The next connection may be accepted, see is_setting_up. */
static void end_setup(struct tls_client *client)
{
    struct httpd_conn *p =
        (struct httpd_conn *)((char *)client - offsetof(struct httpd_conn, client));
    int fd = p->fd;
    if (atomic_compare_exchange_strong(&p->listener->setup_fd, &fd, -1))
        httpd_acceptor_wake(p->listener->d);
}

static void on_started(struct httpd_listener *listener, struct MHD_Connection *mhd,
                       void **ctx)
{
    struct httpd *d = listener->d;
    struct httpd_conn *p = xcalloc(1, sizeof *p);
    p->listener = listener;
    p->mhd = mhd;
    p->request.conn = p;
    p->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (listener->conf.tls) { /* before the handshake */
        gnutls_session_t session =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session;
        tls_client_init(&p->client, listener->conf.tls, session, end_setup);
    }
    pthread_mutex_init(&p->wait_lock, NULL);
    pthread_cond_init(&p->wakeup, NULL);
    int64_t now = clock_mono_ms();
    atomic_init(&p->since_ms, now);
    p->first_due_ms = now + d->limits.first_request_ms;
    atomic_init(&p->due, deadline_of(HTTPD_NEW, p->first_due_ms));
    pthread_mutex_lock(&d->lock);
    list_prepend(&d->conns, &p->link);
    pthread_mutex_unlock(&d->lock);
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = p};
    epoll_ctl(d->hup_fd, EPOLL_CTL_ADD, p->fd, &event);
    *ctx = p;
}

static bool has_input(int fd)
{
    int unread = 0;
    return ioctl(fd, FIONREAD, &unread) == 0 && unread > 0;
}

/* Whether the client may still send. Closing a connection with unread input resets it,
 * which can discard the part of the reply that the client has not read. */
static bool must_linger(const struct httpd_conn *p)
{
    struct pollfd at = {.fd = p->fd, .events = POLLRDHUP};
    if (httpd_conn_is_closed(p))
        return false;
    if (p->must_linger || has_input(p->fd))
        return true;
    return poll(&at, 1, 0) == 0;
}

static void on_closed(struct httpd_conn *p)
{
    struct httpd_listener *listener = p->listener;
    struct httpd *d = listener->d;
    httpd_conn_end(p);
    end_setup(&p->client);
    bool lingers = must_linger(p);
    pthread_mutex_lock(&d->lock);
    epoll_ctl(d->hup_fd, EPOLL_CTL_DEL, p->fd, NULL);
    list_remove(&p->link);
    if (lingers)
        begin_linger(d, p->fd);
    bool was_full = listener->open >= listener->conf.connections;
    listener->open--;
    listener->leaving -= atomic_load(&p->leaving);
    d->connections--;
    pthread_cond_signal(&d->gone);
    pthread_mutex_unlock(&d->lock);
    if (was_full || lingers)
        httpd_acceptor_wake(d);
    buf_fini(&p->target);
    buf_fini(&p->body);
    buf_fini(&p->sent.body);
    tls_client_fini(&p->client);
    pthread_cond_destroy(&p->wakeup);
    pthread_mutex_destroy(&p->wait_lock);
    free(p);
}

void httpd_on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
                         enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        on_started(cls, mhd, ctx);
    else if (*ctx)
        on_closed(*ctx);
}

void httpd_conn_begin(struct httpd_conn *p)
{
    const struct httpd_listener_config *conf = &p->listener->conf;
    struct httpd *d = p->listener->d;
    if (!p->in_request)
        atomic_fetch_add(&d->in_flight, 1);
    p->in_request = true;
    p->seen_head = p->must_linger = p->chunked = p->authorized = p->is_probe = false;
    for (int i = 0; i < TLS_GROUPS; i++)
        if (p->client.trusted[i])
            atomic_store(&p->trusted, true);
    /* At the first request, the client has shown its certificate, or it has none. */
    if (!p->ranked && conf->mode == HTTPD_THREADS && conf->yields) {
        p->ranked = true;
        if (atomic_load(&p->trusted))
            pthread_setschedparam(pthread_self(), SCHED_OTHER, &(struct sched_param){0});
        else /* of this thread, on Linux */
            setpriority(PRIO_PROCESS, 0, HTTPD_NICE);
    }
    p->route = NULL;
    p->error_status = 0;
    p->why = NULL;
    p->length = p->discarded = 0;
    int64_t due = p->first_due_ms;
    if (!due) {
        int64_t now = clock_mono_ms();
        bool was_idle = now - atomic_load(&p->since_ms) >= PAUSE_MS;
        due = now + d->limits.first_request_ms;
        atomic_store(&p->since_ms, was_idle ? now : p->busy_ms);
    }
    p->first_due_ms = 0;
    httpd_conn_enter(p, HTTPD_REQUEST, due);
}

void httpd_conn_end(struct httpd_conn *p)
{
    if (!p->in_request)
        return;
    struct httpd *d = p->listener->d;
    p->in_request = false;
    httpd_deferred_release(p);
    httpd_conn_uncharge(p);
    buf_fini(&p->body);
    buf_fini(&p->target);
    int64_t now = clock_mono_ms();
    p->busy_ms = atomic_exchange(&p->since_ms, now);
    httpd_conn_enter(p, HTTPD_IDLE, now + p->listener->d->limits.idle_ms);
    atomic_fetch_sub(&d->in_flight, 1);
}

/* -- Eviction -- */

/*
 * A full listener closes connections in favor of new ones: those of untrusted
 * clients before those of trusted ones, of each a stream that waits for data last, and of
 * the others the one that has been in its phase for the longest time. A connection whose
 * handler runs is never closed.
 */

enum {
    BATCH = 32, /* a full listener closes one of so many connections at once */
    /* A new connection has a while for its request, so that a storm of others does not
     * close it before. It is as short as necessary to accept a full backlog in a second;
     * with TLS, the pace of handshakes decides (is_setting_up). */
    ACCEPTS_PER_MS = 5,
    GRACE_MAX_MS = 500,
};

struct candidate {
    struct httpd_conn *conn;
    uint64_t due;
    int64_t since_ms;
    unsigned rank;
};

/* Whether the connection may be closed. A stream waits in phase HTTPD_WORK, and so does a
 * request for a handler or a decision. */
static bool is_evictable(const struct httpd_conn *p, enum httpd_phase phase)
{
    if (p->leaving)
        return false;
    if (phase == HTTPD_WORK)
        return p->stream || p->queued || p->deferred;
    return phase == HTTPD_NEW || phase == HTTPD_REQUEST || phase == HTTPD_SEND ||
           phase == HTTPD_IDLE;
}

static int by_order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->since_ms < y->since_ms ? -1 : x->since_ms > y->since_ms;
}

/* A request has arrived, which libmicrohttpd is about to read. */
static bool is_about_to_begin(const struct candidate *c)
{
    return httpd_conn_deadline_phase(c->due) == HTTPD_IDLE && has_input(c->conn->fd);
}

static void mark_leaving(struct httpd_conn *p)
{
    atomic_store(&p->leaving, true);
    p->listener->leaving++;
}

/* False: the connection has entered another phase meanwhile. */
static bool evict(struct httpd_conn *p, uint64_t due)
{
    if (!atomic_compare_exchange_strong(&p->due, &due,
                                        deadline_of(HTTPD_CLOSED, INT64_MAX)))
        return false;
    mark_leaving(p);
    atomic_fetch_add(&p->listener->d->evicted, 1);
    shutdown(p->fd, SHUT_RDWR);
    httpd_conn_wake(p);
    return true;
}

static bool reject_queued(struct httpd_conn *p)
{
    mark_leaving(p);
    atomic_fetch_add(&p->listener->d->rejected, 1);
    pthread_cond_broadcast(&p->listener->handed);
    return true;
}

static bool evict_some(struct httpd_listener *listener)
{
    struct httpd *d = listener->d;
    size_t most = listener->conf.connections / BATCH + 1, done = 0;
    pthread_mutex_lock(&d->lock);
    cleanup_free struct candidate *all = xcalloc(listener->open, sizeof *all);
    size_t listed = 0, n = 0;
    LIST_EACH(struct httpd_conn, p, &d->conns, link)
    {
        if (p->listener != listener || listed == listener->open)
            continue;
        listed++;
        uint64_t due = atomic_load(&p->due);
        enum httpd_phase phase = httpd_conn_deadline_phase(due);
        bool waits = p->stream && phase == HTTPD_WORK;
        all[n] = (struct candidate){.conn = p,
                                    .due = due,
                                    .since_ms = atomic_load(&p->since_ms),
                                    .rank = (p->queued ? 4u : 0u) +
                                            (atomic_load(&p->trusted) ? 2u : 0u) +
                                            (waits ? 1u : 0u)};
        n += is_evictable(p, phase);
    }
    /* libmicrohttpd adds a connection shortly after its accept. */
    bool is_complete = listed == listener->open;
    qsort(all, n, sizeof *all, by_order);
    int64_t grace_ms =
        listener->conf.connections / ACCEPTS_PER_MS * (listener->conf.tls ? 2 : 1);
    int64_t latest_ms =
        clock_mono_ms() - (grace_ms < GRACE_MAX_MS ? grace_ms : GRACE_MAX_MS);
    for (size_t i = 0; i < n && done < most; i++) {
        struct httpd_conn *p = all[i].conn;
        if (all[i].since_ms > latest_ms) /* the next ones do not go before it */
            break;
        if (all[i].rank > 0 && (done || !is_complete)) /* no more of these than needed */
            break;
        if (!is_about_to_begin(&all[i]))
            done += p->queued ? reject_queued(p) : evict(p, all[i].due);
    }
    pthread_mutex_unlock(&d->lock);
    return done > 0;
}

/* Closes the connection with the largest incomplete body, of an untrusted client if there
 * is one, in favor of n more bytes of p. False: p goes first. Without this, clients that
 * never complete their bodies keep kube-scheduler's out. A large body makes no room for
 * itself: several at a time would close each other's connections. */
static bool evict_body(struct httpd_conn *p, uint64_t n)
{
    struct httpd *d = p->listener->d;
    struct httpd_conn *most = p;
    uint64_t most_n = atomic_load(&p->charged) + n;
    if (p->length > d->limits.max_bodies / 16 && p->length > most_n)
        most_n = p->length;
    pthread_mutex_lock(&d->lock);
    LIST_EACH(struct httpd_conn, q, &d->conns, link)
    {
        uint64_t q_n = atomic_load(&q->charged);
        bool trusted = atomic_load(&q->trusted), than = atomic_load(&most->trusted);
        if (q != p && !q->leaving && q_n &&
            httpd_conn_deadline_phase(atomic_load(&q->due)) == HTTPD_REQUEST &&
            (trusted != than ? than : q_n > most_n)) {
            most = q;
            most_n = q_n;
        }
    }
    uint64_t due = atomic_load(&most->due);
    bool done =
        most != p && httpd_conn_deadline_phase(due) == HTTPD_REQUEST && evict(most, due);
    if (done) /* its memory is freed shortly after */
        httpd_conn_uncharge(most);
    pthread_mutex_unlock(&d->lock);
    return done;
}

bool httpd_conn_charge(struct httpd_conn *p, uint64_t n)
{
    struct httpd *d = p->listener->d;
    if (n > d->limits.max_bodies)
        return false;
    while (atomic_fetch_add(&d->body_bytes, n) > d->limits.max_bodies - n) {
        atomic_fetch_sub(&d->body_bytes, n);
        if (!evict_body(p, n))
            return false;
    }
    atomic_fetch_add(&p->charged, n);
    return true;
}

void httpd_conn_uncharge(struct httpd_conn *p)
{
    atomic_fetch_sub(&p->listener->d->body_bytes, atomic_exchange(&p->charged, 0));
}

/* -- Accept -- */

enum {
    ACCEPT_BURST = 64, /* connections per listener and round, for fairness */
    ACCEPT_RETRY_MS = 100,
    SETUP_MS = 1, /* with 2, probes wait in the backlog for over a second under a flood */
    ACCEPT_WARN_MS = 60 * 1000,
};

/* The acceptor checks all connections in the next round. */
static void check_soon(struct httpd *d)
{
    int64_t at = clock_mono_ms() + HTTPD_ROUND_MIN_MS;
    if (d->check_ms > at)
        d->check_ms = at;
}

/* Whether the next connection can be passed on. If the listener is full and a connection
 * is pending, others are closed in favor of it. Only the acceptor adds connections, so
 * the result cannot become false meanwhile. */
static bool has_room_for_next(struct httpd_listener *listener)
{
    struct pollfd pending = {.fd = listener->fd, .events = POLLIN};
    unsigned limit = listener->conf.connections;
    pthread_mutex_lock(&listener->d->lock);
    bool has_room = listener->open - listener->leaving < limit,
         has_spare = listener->open < limit + HTTPD_SPARE;
    pthread_mutex_unlock(&listener->d->lock);
    if (has_room || !has_spare)
        return has_spare;
    if (poll(&pending, 1, 0) <= 0)
        return false;
    if (evict_some(listener)) {
        check_soon(listener->d);
        return true;
    }
    listener->retry_ms = clock_mono_ms() + HTTPD_ROUND_MIN_MS;
    return false;
}

static void count_open(struct httpd_listener *listener, int n)
{
    pthread_mutex_lock(&listener->d->lock);
    listener->open += (unsigned)n;
    listener->d->connections += (unsigned)n;
    pthread_mutex_unlock(&listener->d->lock);
}

/*
 * A handshake is a millisecond of processor time, and each connection has a thread: if
 * hundreds began at once, a request of kube-scheduler would get a small share of a
 * processor. So the next connection is accepted when the first part of the handshake before
 * it is computed, or after SETUP_MS, because its first message can be incomplete. This paces
 * a backlog; clients that send their first message only after they were accepted are not
 * paced.
 */
static bool is_setting_up(const struct httpd_listener *listener, int64_t now)
{
    return atomic_load(&listener->d->state) == HTTPD_RUNNING && /* a drain accepts all */
           atomic_load(&listener->setup_fd) >= 0 && now < listener->setup_until_ms;
}

/* Accepts one connection. Returns whether to call it again at once: false if none is
 * pending, there is no room for one, or accept fails and will be tried again later. */
static bool accept_one(struct httpd_listener *listener)
{
    struct sockaddr_storage addr;
    socklen_t n = sizeof addr;
    if (is_setting_up(listener, clock_mono_ms()) || !has_room_for_next(listener))
        return false;
    int fd =
        accept4(listener->fd, (struct sockaddr *)&addr, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EAGAIN)
            return false;
        if (errno == ECONNABORTED || errno == EPROTO || errno == EINTR || errno == EPERM)
            return true; /* that connection was reset */
        int64_t now = clock_mono_ms();
        listener->retry_ms = now + ACCEPT_RETRY_MS;
        if (now >= listener->warned_ms) {
            log_warn("httpd", "accept: failed; retrying",
                     LOG_S("listener", listener->conf.name),
                     LOG_S("err", strerrordesc_np(errno)),
                     LOG_I("retry_ms", ACCEPT_RETRY_MS));
            listener->warned_ms = now + ACCEPT_WARN_MS;
        }
        return false;
    }
    /* The client has reset it in the backlog. In a storm of these, other clients would wait
     * for each to begin and end. */
    struct pollfd at = {.fd = fd};
    if (poll(&at, 1, 0) > 0 && at.revents & POLLERR) {
        close(fd);
        return true;
    }
    /* Detects a dead client after 90 s, also on a stream without data. */
    const int on = 1, idle_s = 60, interval_s = 10, probes = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    count_open(listener, 1);
    if (listener->conf.tls && listener->conf.mode == HTTPD_THREADS && has_input(fd)) {
        listener->setup_until_ms = clock_mono_ms() + SETUP_MS;
        atomic_store(&listener->setup_fd, fd);
    }
    if (MHD_add_connection(listener->mhd, fd, (const struct sockaddr *)&addr, n) !=
        MHD_YES)
        count_open(listener, -1); /* it has closed fd */
    return true;
}

/* -- The acceptor -- */

/*
 * The acceptor sleeps until the next deadline, at most for ROUND_MAX_MS, because a
 * connection may set an earlier one meanwhile. An accept needs no look at the other
 * connections, unless the listener is full.
 */

enum {
    DRAIN_GRACE_MS = 300, /* a drain closes connections idle for this long */
    HANGUPS = 64,         /* events per round */
    ROUND_MAX_MS = 200,   /* the latest that a deadline is noticed */
};

void httpd_acceptor_wake(struct httpd *d)
{
    ssize_t n = write(d->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* fails only if a wake-up is already pending */
}

/* The deadline `due` has passed: closes the connection, unless its deadline was changed
 * meanwhile or the client has read some of the reply. */
static void expire(struct httpd_conn *p, uint64_t due, int64_t now)
{
    if (httpd_conn_deadline_phase(due) == HTTPD_SEND) {
        struct tcp_info info = {0};
        socklen_t n = sizeof info;
        getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &n);
        if (info.tcpi_bytes_acked != p->acked) {
            p->acked = info.tcpi_bytes_acked;
            int64_t later = now + p->listener->d->send_ms;
            atomic_compare_exchange_strong(&p->due, &due, deadline_of(HTTPD_SEND, later));
            return;
        }
    }
    if (!atomic_compare_exchange_strong(&p->due, &due,
                                        deadline_of(HTTPD_CLOSED, INT64_MAX)))
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
    if (now - atomic_load(&p->since_ms) < DRAIN_GRACE_MS || has_input(p->fd))
        return;
    if (atomic_compare_exchange_strong(&p->due, &due,
                                       deadline_of(HTTPD_CLOSING, INT64_MAX)))
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
    int64_t at = httpd_conn_deadline_ms(atomic_load(&p->due)),
            wake = httpd_conn_wake_due(p, now);
    return wake < at ? wake : at;
}

/* Checks all connections. Returns how long to sleep in milliseconds, or -1: forever.
 * httpd.lock is held. */
static int64_t check_conns(struct httpd *d, int64_t now)
{
    bool draining = atomic_load(&d->state) != HTTPD_RUNNING;
    int64_t wait = ROUND_MAX_MS;
    for (size_t i = 0; i < d->n_listeners; i++)
        if (d->listeners[i]->leaving)
            wait = HTTPD_ROUND_MIN_MS;
    LIST_EACH(struct httpd_conn, p, &d->conns, link)
    {
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

/* The shorter wait; -1: forever. */
static int64_t sooner(int64_t wait, int64_t left)
{
    if (wait >= 0 && wait <= left)
        return wait;
    return left > 0 ? left : 0;
}

/* What the acceptor polls: wake_fd, hup_fd, listeners, lingering connections. */
enum { FIRST_LISTENER = 2, FDS_MAX = FIRST_LISTENER + HTTPD_LISTENERS + HTTPD_LINGERS };

static void run_round(struct httpd *d)
{
    struct pollfd fds[FDS_MAX], *at = fds;
    uint64_t wakes;
    pthread_mutex_lock(&d->lock);
    int64_t now = clock_mono_ms(), wait = d->check_ms - now;
    if (wait <= 0 || atomic_load(&d->state) != HTTPD_RUNNING) {
        wait = check_conns(d, now);
        d->check_ms = wait < 0 ? now : now + wait;
    }
    *at++ = (struct pollfd){.fd = d->wake_fd, .events = POLLIN};
    *at++ = (struct pollfd){.fd = d->hup_fd, .events = POLLIN};
    for (size_t i = 0; i < d->n_listeners; i++) {
        const struct httpd_listener *listener = d->listeners[i];
        bool is_full = listener->open >= listener->conf.connections + HTTPD_SPARE;
        int64_t due = is_setting_up(listener, now) ? listener->setup_until_ms : 0;
        if (due < listener->retry_ms)
            due = listener->retry_ms;
        bool is_late = due > now;
        if (is_late)
            wait = sooner(wait, due - now);
        *at++ = (struct pollfd){.fd = is_late || is_full ? -1 : listener->fd,
                                .events = POLLIN}; /* poll ignores -1 */
    }
    for (size_t i = 0; i < d->n_lingers; i++) {
        wait = sooner(wait, d->linger[i].until_ms - now);
        *at++ = (struct pollfd){.fd = d->linger[i].fd, .events = POLLIN};
    }
    size_t n = d->n_listeners, n_lingers = d->n_lingers;
    pthread_mutex_unlock(&d->lock);
    poll(fds, FIRST_LISTENER + n + n_lingers, wait > INT32_MAX ? INT32_MAX : (int)wait);
    ssize_t got = read(d->wake_fd, &wakes, sizeof wakes);
    (void)got;
    if (fds[1].revents) { /* clients have closed their sending side */
        struct epoll_event events[HANGUPS];
        pthread_mutex_lock(&d->lock); /* keeps the connections alive */
        int hangups = epoll_wait(d->hup_fd, events, HANGUPS, 0);
        for (int i = 0; i < hangups; i++) {
            struct httpd_conn *p = events[i].data.ptr;
            epoll_ctl(d->hup_fd, EPOLL_CTL_DEL, p->fd, NULL);
            atomic_store(&p->hung_up, true);
            if (p->stream)
                httpd_conn_wake(p);
            close_if_hung_up(p, httpd_conn_deadline_phase(atomic_load(&p->due)));
        }
        check_soon(d);
        pthread_mutex_unlock(&d->lock);
    }
    for (size_t i = 0; i < n; i++)
        for (int left = ACCEPT_BURST;
             left && fds[FIRST_LISTENER + i].revents && accept_one(d->listeners[i]);)
            left--;
    if (n_lingers) {
        now = clock_mono_ms();
        pthread_mutex_lock(&d->lock);
        size_t left = 0;
        for (size_t i = 0; i < d->n_lingers; i++) {
            if (linger_on(&d->linger[i], now))
                d->linger[left++] = d->linger[i];
            else
                close(d->linger[i].fd);
        }
        d->n_lingers = left;
        pthread_mutex_unlock(&d->lock);
    }
}

static void *run_acceptor(void *arg)
{
    struct httpd *d = arg;
    for (int state; (state = atomic_load(&d->state)) != HTTPD_STOPPING;) {
        if (state == HTTPD_DRAINING && !d->closed) {
            /* The connections in the backlog are accepted, so that they are not reset. */
            pthread_mutex_lock(&d->lock);
            size_t n = d->n_listeners;
            pthread_mutex_unlock(&d->lock);
            for (size_t i = 0; i < n; i++) {
                while (accept_one(d->listeners[i]))
                    ;
                close(d->listeners[i]->fd);
                d->listeners[i]->fd = -1;
            }
            pthread_mutex_lock(&d->lock);
            d->closed = true;
            httpd_conn_wake_all(d);
            pthread_cond_broadcast(&d->gone);
            pthread_mutex_unlock(&d->lock);
        }
        run_round(d);
    }
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
    int rc = pthread_create(&d->acceptor, NULL, run_acceptor, d);
    if (rc)
        return err_set(err, ERR_UNAVAILABLE, "pthread_create: %s", strerrordesc_np(rc));
    pthread_setname_np(d->acceptor, "httpd");
    d->has_acceptor = true;
    return 0;
}
