/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ticker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

enum {
    MAX_WAIT_MS = 1000,
};

struct ticker {
    struct ticker_fns fns;
    void *ctx;
    bool started;
    pthread_t thread;
    pthread_mutex_t lock; /* protects is_woken and stop */
    pthread_cond_t cond;
    bool is_woken, stop;
};

/* Waits until the next tick is due, or until ticker_wake. False: ticker_stop was called.
 */
static bool wait_until(struct ticker *t, int64_t due_ms)
{
    int64_t wait_ms = due_ms - clock_mono_ms();
    if (wait_ms > MAX_WAIT_MS)
        wait_ms = MAX_WAIT_MS;
    if (wait_ms < 1)
        wait_ms = 1; /* never spin, even if the machine is always due */
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += wait_ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;

    pthread_mutex_lock(&t->lock);
    int timed_out = 0;
    while (!t->is_woken && !t->stop && !timed_out)
        timed_out = pthread_cond_timedwait(&t->cond, &t->lock, &until);
    t->is_woken = false;
    bool go_on = !t->stop;
    pthread_mutex_unlock(&t->lock);
    return go_on;
}

static void *run(void *arg)
{
    struct ticker *t = arg;
    do
        t->fns.tick(t->ctx);
    while (wait_until(t, t->fns.due(t->ctx)));
    return NULL;
}

struct ticker *ticker_new(void)
{
    struct ticker *t = xcalloc(1, sizeof *t);
    pthread_condattr_t attr;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->cond, &attr);
    pthread_condattr_destroy(&attr);
    return t;
}

void ticker_start(struct ticker *t, const struct ticker_fns *fns, void *ctx)
{
    t->fns = *fns;
    t->ctx = ctx;
    t->started = true;
    if (pthread_create(&t->thread, NULL, run, t))
        abort();
    pthread_setname_np(t->thread, "ticker");
}

void ticker_wake(struct ticker *t)
{
    pthread_mutex_lock(&t->lock);
    t->is_woken = true;
    pthread_cond_signal(&t->cond);
    pthread_mutex_unlock(&t->lock);
}

void ticker_stop(struct ticker *t)
{
    if (!t->started)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->cond);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
}

void ticker_free(struct ticker *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->cond);
    free(t);
}
