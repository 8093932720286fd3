/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and what they wait for: deadline, queue of jobs, ticks. */
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

/* -- jobs and ticks -- */

enum { TICK_MAX_WAIT_MS = 1000 };

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
    struct list queue;         /* of struct entry */
    int64_t (*due)(void *ctx); /* time of the next tick; NULL: no ticks */
    bool is_woken, stop, ended;
};

/* Waits for a job or, until `due_ms`, for a tick, which is NULL. Requires the lock. */
static void *next_job(struct worker *w, int64_t due_ms)
{
    while (list_is_empty(&w->queue) && !w->stop && !(w->due && w->is_woken) &&
           thread_wait_until(&w->cond, &w->lock, due_ms))
        continue;
    if (w->stop || list_is_empty(&w->queue)) {
        w->is_woken = false;
        return NULL;
    }
    struct entry *e = LIST_FIRST(&w->queue, struct entry, link);
    void *job = e->job;
    list_remove(&e->link);
    free(e);
    return job;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        int64_t (*due)(void *ctx) = w->due, due_ms = INT64_MAX;
        pthread_mutex_unlock(&w->lock);
        if (due) {
            int64_t now_ms = clock_mono_ms();
            due_ms = due(w->ctx);
            if (due_ms > now_ms + TICK_MAX_WAIT_MS)
                due_ms = now_ms + TICK_MAX_WAIT_MS;
            if (due_ms < now_ms + 1)
                due_ms = now_ms + 1; /* never spin, even if a tick is always due */
        }
        pthread_mutex_lock(&w->lock);
        void *job = next_job(w, due_ms);
        if (w->stop || (!job && !w->due))
            continue;
        pthread_mutex_unlock(&w->lock);
        w->work(w->ctx, job);
        free(job);
        pthread_mutex_lock(&w->lock);
    }
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

void worker_tick(struct worker *w, int64_t (*due)(void *ctx))
{
    pthread_mutex_lock(&w->lock);
    w->due = due;
    w->is_woken = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

void worker_wake(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->is_woken = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

bool worker_rest(struct worker *w, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    pthread_mutex_lock(&w->lock);
    while (!w->stop && thread_wait_until(&w->cond, &w->lock, until_ms))
        continue;
    bool stop = w->stop;
    pthread_mutex_unlock(&w->lock);
    return stop;
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
    if (!w->stop)
        worker_stop(w);
    LIST_EACH(struct entry, e, &w->queue, link)
    {
        free(e->job);
        free(e);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->cond);
    free(w);
}
