/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/*
 * Requests that wait for a decision. With a thread per connection the thread blocks;
 * otherwise the connection is suspended, and libmicrohttpd calls httpd_on_request again
 * when it is resumed.
 *
 * A waiter has two references: one of the connection and one of the code that decides.
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
    p->waiter = w;
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

void httpd_wait_cancel(struct httpd_conn *p)
{
    if (!p->waiter)
        return;
    pthread_mutex_lock(&p->waiter->lock);
    finish(p->waiter);
    pthread_mutex_unlock(&p->waiter->lock);
}

void httpd_wait_end_all(struct httpd *d)
{
    for (struct httpd_conn *p = d->conns; p; p = p->next)
        httpd_wait_cancel(p);
}

bool httpd_wait_block(struct httpd_conn *p)
{
    struct httpd_deferred *w = p->waiter;
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

void httpd_wait_end(struct httpd_conn *p)
{
    struct httpd *d = p->listener->d;
    if (!p->waiter) /* only this thread sets it */
        return;
    pthread_mutex_lock(&d->lock);
    struct httpd_deferred *w = steal(&p->waiter);
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_lock(&w->lock);
    w->conn = NULL;
    pthread_mutex_unlock(&w->lock);
    release(w);
}
