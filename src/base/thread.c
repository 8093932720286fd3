/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and what they wait for: deadline, stop flag, queue of jobs, ticks. */
#include "base/thread.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

sigset_t signals_block(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return set;
}

/* pthread knows no CLOCK_BOOTTIME; a wait that a suspend prolongs ends at the next wake-up
 * of the caller's loop. */
bool thread_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ms)
{
    int64_t ms = until_ms - clock_mono_ms();
    if (ms <= 0)
        return false;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &until) == 0 ||
           clock_mono_ms() < until_ms;
}

/* -- the flag -- */

void stop_flag_init(struct stop_flag *f)
{
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->cond, NULL);
    f->is_set = false;
}

void stop_flag_fini(struct stop_flag *f)
{
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->cond);
}

bool stop_flag_wait(struct stop_flag *f, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    pthread_mutex_lock(&f->lock);
    while (!f->is_set && thread_wait_until(&f->cond, &f->lock, until_ms))
        continue;
    bool is_set = f->is_set;
    pthread_mutex_unlock(&f->lock);
    return is_set;
}

void stop_flag_set(struct stop_flag *f)
{
    pthread_mutex_lock(&f->lock);
    f->is_set = true;
    pthread_cond_broadcast(&f->cond);
    pthread_mutex_unlock(&f->lock);
}

/* -- jobs -- */

struct entry {
    void *job;
    struct list link;
};

struct worker {
    void (*work)(void *ctx, void *job);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t cond;
    struct list queue; /* of struct entry */
    bool stop, ended;
};

static void *worker_next_job(struct worker *w)
{
    void *job = NULL;
    pthread_mutex_lock(&w->lock);
    while (list_is_empty(&w->queue) && !w->stop)
        pthread_cond_wait(&w->cond, &w->lock);
    if (!w->stop) {
        struct entry *e = LIST_FIRST(&w->queue, struct entry, link);
        list_remove(&e->link);
        job = e->job;
        free(e);
    }
    pthread_mutex_unlock(&w->lock);
    return job;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    void *job;
    while ((job = worker_next_job(w)) != NULL) {
        w->work(w->ctx, job);
        free(job);
    }
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct worker *worker_start(const char *name, void (*work)(void *ctx, void *job),
                            void *ctx)
{
    struct worker *w = xcalloc(1, sizeof *w);
    w->work = work;
    w->ctx = ctx;
    list_init(&w->queue);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->cond, NULL);
    if (pthread_create(&w->thread, NULL, worker_main, w))
        abort();
    pthread_setname_np(w->thread, name);
    return w;
}

void worker_add(struct worker *w, void *job)
{
    struct entry *e = xcalloc(1, sizeof *e);
    e->job = job;
    pthread_mutex_lock(&w->lock);
    list_append(&w->queue, &e->link);
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

bool worker_stop_until(struct worker *w, int64_t until_ms)
{
    if (!w)
        return true;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->cond);
    while (!w->ended && thread_wait_until(&w->cond, &w->lock, until_ms))
        continue;
    bool ended = w->ended;
    pthread_mutex_unlock(&w->lock);
    if (ended)
        pthread_join(w->thread, NULL);
    return ended;
}

void worker_stop(struct worker *w)
{
    worker_stop_until(w, INT64_MAX);
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    LIST_EACH(struct entry, e, &w->queue, link)
    {
        free(e->job);
        free(e);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->cond);
    free(w);
}

/* -- ticks -- */

enum { TICK_MAX_WAIT_MS = 1000 };

struct ticker {
    struct ticker_fns fns;
    void *ctx;
    bool started;
    pthread_t thread;
    pthread_mutex_t lock; /* protects is_woken and stop */
    pthread_cond_t cond;
    bool is_woken, stop;
};

/* Waits until the next tick is due, or until ticker_wake. False: ticker_stop was called. */
static bool ticker_wait(struct ticker *t, int64_t due_ms)
{
    int64_t now_ms = clock_mono_ms();
    if (due_ms > now_ms + TICK_MAX_WAIT_MS)
        due_ms = now_ms + TICK_MAX_WAIT_MS;
    if (due_ms < now_ms + 1)
        due_ms = now_ms + 1; /* never spin, even if the machine is always due */
    pthread_mutex_lock(&t->lock);
    while (!t->is_woken && !t->stop && thread_wait_until(&t->cond, &t->lock, due_ms))
        continue;
    t->is_woken = false;
    bool go_on = !t->stop;
    pthread_mutex_unlock(&t->lock);
    return go_on;
}

static void *ticker_main(void *arg)
{
    struct ticker *t = arg;
    do
        t->fns.tick(t->ctx);
    while (ticker_wait(t, t->fns.due(t->ctx)));
    return NULL;
}

struct ticker *ticker_new(void)
{
    struct ticker *t = xcalloc(1, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->cond, NULL);
    return t;
}

void ticker_start(struct ticker *t, const struct ticker_fns *fns, void *ctx)
{
    t->fns = *fns;
    t->ctx = ctx;
    t->started = true;
    if (pthread_create(&t->thread, NULL, ticker_main, t))
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
