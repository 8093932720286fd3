/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/*
 * Which connections a full listener closes in favor of new ones: those of untrusted
 * clients before those of trusted ones, and of each the one that has been in its phase for
 * the longest time. A connection whose handler runs is never closed.
 */

enum {
    BATCH = 32, /* a full listener closes one of so many connections at once */
    /* A new connection has a while for its request, so that a storm of others does not
     * close it before. It is as short as necessary to accept a full backlog in a second,
     * or two with TLS, whose handshake takes longer. */
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
        return p->stream || p->queued || p->waiter;
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

static struct candidate candidate_of(struct httpd_conn *p)
{
    uint64_t due = atomic_load(&p->due);
    return (struct candidate){.conn = p,
                              .due = due,
                              .since_ms = atomic_load(&p->since_ms),
                              .rank = (p->queued ? 2u : 0u) +
                                      (atomic_load(&p->trusted) ? 1u : 0u)};
}

static int64_t grace_ms(const struct httpd_listener *listener)
{
    int64_t ms = listener->conf.connections / ACCEPTS_PER_MS;
    ms *= listener->has_tls ? 2 : 1;
    return ms < GRACE_MAX_MS ? ms : GRACE_MAX_MS;
}

/* A request has arrived, which libmicrohttpd is about to read. */
static bool is_about_to_begin(const struct candidate *c)
{
    int unread = 0;
    return httpd_conn_deadline_phase(c->due) == HTTPD_IDLE &&
           ioctl(c->conn->fd, FIONREAD, &unread) == 0 && unread > 0;
}

static void leave(struct httpd_conn *p)
{
    atomic_store(&p->leaving, true);
    p->listener->leaving++;
}

/* False: the connection has entered another phase meanwhile. */
static bool evict(struct httpd_conn *p, uint64_t due)
{
    if (!atomic_compare_exchange_strong(&p->due, &due,
                                        httpd_conn_deadline(HTTPD_EVICTED, INT64_MAX)))
        return false;
    leave(p);
    atomic_fetch_add(&p->listener->d->evicted, 1);
    shutdown(p->fd, SHUT_RDWR);
    if (p->stream)
        httpd_stream_wake(p->stream);
    httpd_wait_cancel(p);
    return true;
}

static bool reject_queued(struct httpd_conn *p)
{
    p->rejected = true;
    leave(p);
    atomic_fetch_add(&p->listener->d->rejected, 1);
    pthread_cond_broadcast(&p->listener->handed);
    return true;
}

bool httpd_evict_some(struct httpd_listener *listener)
{
    struct httpd *d = listener->d;
    size_t most = listener->conf.connections / BATCH + 1, done = 0;
    pthread_mutex_lock(&d->lock);
    cleanup_free struct candidate *all = xcalloc(listener->open, sizeof *all);
    size_t listed = 0, n = 0;
    for (struct httpd_conn *p = d->conns; p; p = p->next) {
        if (p->listener != listener || listed == listener->open)
            continue;
        listed++;
        all[n] = candidate_of(p);
        n += is_evictable(p, httpd_conn_deadline_phase(all[n].due));
    }
    /* libmicrohttpd adds a connection shortly after its accept. */
    bool is_complete = listed == listener->open;
    qsort(all, n, sizeof *all, by_order);
    int64_t latest_ms = clock_mono_ms() - grace_ms(listener);
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
