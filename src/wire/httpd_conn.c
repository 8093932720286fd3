/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

enum {
    PHASE_BITS = 3,
    PAUSE_MS = 2, /* shortest pause between two requests that are not pipelined */
};

uint64_t httpd_conn_deadline(enum httpd_phase phase, int64_t due_ms)
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
    uint64_t before = atomic_exchange(&p->due, httpd_conn_deadline(phase, due_ms));
    enum httpd_phase was = httpd_conn_deadline_phase(before);
    if (was != HTTPD_TIMED_OUT && was != HTTPD_EVICTED)
        return true;
    atomic_store(&p->due, before);
    return false;
}

bool httpd_conn_is_closed(const struct httpd_conn *p)
{
    enum httpd_phase phase = httpd_conn_deadline_phase(atomic_load(&p->due));
    return phase == HTTPD_TIMED_OUT || phase == HTTPD_EVICTED;
}

static void on_started(struct httpd_listener *listener, struct MHD_Connection *mhd,
                       void **ctx)
{
    struct httpd *d = listener->d;
    struct httpd_conn *p = xcalloc(1, sizeof *p);
    p->listener = listener;
    p->mhd = mhd;
    p->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (listener->conf.tls) { /* before the handshake */
        gnutls_session_t session =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session;
        tls_client_init(&p->client, listener->conf.tls, session);
    }
    int64_t now = clock_mono_ms();
    atomic_init(&p->since_ms, now);
    p->first_due_ms = now + d->limits.first_request_ms;
    atomic_init(&p->due, httpd_conn_deadline(HTTPD_NEW, p->first_due_ms));
    pthread_mutex_lock(&d->lock);
    p->next = d->conns;
    if (p->next)
        p->next->prev = p;
    d->conns = p;
    pthread_mutex_unlock(&d->lock);
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = p};
    if (epoll_ctl(d->hup_fd, EPOLL_CTL_ADD, p->fd, &event) != 0)
        log_debug("httpd", "epoll_ctl", LOG_S("err", strerrordesc_np(errno)));
    *ctx = p;
}

static void conn_free(struct httpd_conn *p)
{
    buf_fini(&p->target);
    buf_fini(&p->body);
    buf_fini(&p->sent);
    arena_fini(&p->params);
    tls_client_fini(&p->client);
    free(p->host);
    free(p);
}

/* Whether the client may still send. Closing a connection with unread input resets it,
 * which can discard the part of the reply that the client has not read. */
static bool must_linger(const struct httpd_conn *p)
{
    struct pollfd at = {.fd = p->fd, .events = POLLRDHUP};
    int unread = 0;
    if (httpd_conn_is_closed(p))
        return false;
    if (p->must_linger || (ioctl(p->fd, FIONREAD, &unread) == 0 && unread > 0))
        return true;
    return poll(&at, 1, 0) == 0;
}

static void on_closed(struct httpd_conn *p)
{
    struct httpd_listener *listener = p->listener;
    struct httpd *d = listener->d;
    httpd_conn_end(p);
    bool lingers = must_linger(p);
    pthread_mutex_lock(&d->lock);
    epoll_ctl(d->hup_fd, EPOLL_CTL_DEL, p->fd, NULL);
    if (p->next)
        p->next->prev = p->prev;
    if (p->prev)
        p->prev->next = p->next;
    else
        d->conns = p->next;
    if (lingers)
        httpd_linger_begin(d, p->fd);
    bool was_full = listener->open >= listener->conf.connections;
    listener->open--;
    listener->leaving -= atomic_load(&p->leaving);
    d->connections--;
    pthread_cond_signal(&d->gone);
    pthread_mutex_unlock(&d->lock);
    if (was_full || lingers)
        httpd_acceptor_wake(d);
    conn_free(p);
}

void httpd_on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
                         enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        on_started(cls, mhd, ctx);
    else if (*ctx)
        on_closed(*ctx);
}

/* At the first request, the client has shown its certificate, or it has none. */
static void rank_thread(struct httpd_conn *p)
{
    const struct httpd_listener_config *conf = &p->listener->conf;
    if (p->ranked || conf->mode != HTTPD_THREADS || !conf->yields)
        return;
    p->ranked = true;
    if (atomic_load(&p->trusted))
        pthread_setschedparam(pthread_self(), SCHED_OTHER, &(struct sched_param){0});
    else /* of this thread, on Linux */
        setpriority(PRIO_PROCESS, 0, HTTPD_NICE);
}

void httpd_conn_begin(struct httpd_conn *p)
{
    struct httpd *d = p->listener->d;
    if (!p->in_request)
        atomic_fetch_add(&d->in_flight, 1);
    p->in_request = true;
    p->seen_head = p->must_linger = p->chunked = p->authorized = p->is_probe = false;
    free(steal(&p->host));
    for (int i = 0; i < TLS_GROUPS; i++)
        if (p->client.trusted[i])
            atomic_store(&p->trusted, true);
    rank_thread(p);
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
    httpd_wait_end(p);
    httpd_conn_uncharge(p);
    buf_fini(&p->body);
    buf_fini(&p->target);
    arena_fini(&p->params);
    int64_t now = clock_mono_ms();
    p->busy_ms = atomic_exchange(&p->since_ms, now);
    httpd_conn_enter(p, HTTPD_IDLE, now + p->listener->conf.idle_ms);
    if (atomic_load(&p->hung_up))
        httpd_acceptor_check(d); /* to close the connection */
    atomic_fetch_sub(&d->in_flight, 1);
}

bool httpd_conn_charge(struct httpd_conn *p, uint64_t n)
{
    struct httpd *d = p->listener->d;
    if (n > d->limits.max_bodies)
        return false;
    if (atomic_fetch_add(&d->body_bytes, n) > d->limits.max_bodies - n) {
        atomic_fetch_sub(&d->body_bytes, n);
        return false;
    }
    p->charged += n;
    return true;
}

void httpd_conn_uncharge(struct httpd_conn *p)
{
    atomic_fetch_sub(&p->listener->d->body_bytes, p->charged);
    p->charged = 0;
}
