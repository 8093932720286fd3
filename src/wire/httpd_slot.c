/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpd_priv.h"

/*
 * Handlers that may block, and the requests that wait until fewer of them run. A waiting
 * request is counted in `waiting` before it looks at `running`, and a handler that
 * returns looks at `waiting` after it has left `running`: one of them sees the other.
 */

static bool is_limited(const struct httpd_conn *p)
{
    return p->listener->conf.mode == HTTPD_THREADS && !p->is_probe;
}

static bool try_take(struct httpd_conn *p)
{
    struct httpd_listener *listener = p->listener;
    unsigned limit = listener->conf.handlers, running = atomic_load(&listener->running);
    if (!atomic_load(&p->trusted))
        limit -= limit / 4;
    while (running < limit)
        if (atomic_compare_exchange_weak(&listener->running, &running, running + 1))
            return true;
    return false;
}

static bool wait_for_slot(struct httpd_conn *p)
{
    struct httpd_listener *listener = p->listener;
    struct httpd *d = listener->d;
    bool taken;
    pthread_mutex_lock(&d->lock);
    p->queued = true;
    atomic_fetch_add(&listener->waiting, 1);
    while (!(taken = try_take(p)) && !p->rejected &&
           atomic_load(&d->state) != HTTPD_STOPPING)
        pthread_cond_wait(&listener->handed, &d->lock);
    atomic_fetch_sub(&listener->waiting, 1);
    p->queued = false;
    pthread_mutex_unlock(&d->lock);
    return taken;
}

bool httpd_slot_take(struct httpd_conn *p)
{
    return !is_limited(p) || try_take(p) || wait_for_slot(p);
}

void httpd_slot_release(struct httpd_conn *p)
{
    struct httpd_listener *listener = p->listener;
    if (!is_limited(p))
        return;
    atomic_fetch_sub(&listener->running, 1);
    if (atomic_load(&listener->waiting) == 0)
        return;
    pthread_mutex_lock(&listener->d->lock);
    pthread_cond_broadcast(&listener->handed);
    pthread_mutex_unlock(&listener->d->lock);
}

void httpd_slot_stop(struct httpd *d)
{
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_listeners; i++)
        pthread_cond_broadcast(&d->listeners[i]->handed);
    pthread_mutex_unlock(&d->lock);
}
