/* SPDX-License-Identifier: Apache-2.0 */
#include "base/worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stop_flag.h"

struct entry {
    void *job;
    struct entry *next;
};

struct worker {
    void (*work)(void *ctx, void *job);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the queue and stop */
    pthread_cond_t cond;
    struct entry *first, **end;
    bool stop;
    struct stop_flag ended;
};

static void *take(struct worker *w)
{
    void *job = NULL;
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->stop)
        pthread_cond_wait(&w->cond, &w->lock);
    if (!w->stop) {
        struct entry *e = w->first;
        job = e->job;
        w->first = e->next;
        if (!w->first)
            w->end = &w->first;
        free(e);
    }
    pthread_mutex_unlock(&w->lock);
    return job;
}

static void *run(void *arg)
{
    struct worker *w = arg;
    void *job;
    while ((job = take(w)) != NULL) {
        w->work(w->ctx, job);
        free(job);
    }
    stop_flag_set(&w->ended);
    return NULL;
}

struct worker *worker_start(const char *name, void (*work)(void *ctx, void *job),
                            void *ctx)
{
    struct worker *w = xcalloc(1, sizeof *w);
    w->work = work;
    w->ctx = ctx;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->cond, NULL);
    stop_flag_init(&w->ended);
    if (pthread_create(&w->thread, NULL, run, w))
        abort();
    pthread_setname_np(w->thread, name);
    return w;
}

void worker_add(struct worker *w, void *job)
{
    struct entry *e = xcalloc(1, sizeof *e);
    e->job = job;
    pthread_mutex_lock(&w->lock);
    *w->end = e;
    w->end = &e->next;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static void request_stop(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

void worker_stop(struct worker *w)
{
    if (!w)
        return;
    request_stop(w);
    pthread_join(w->thread, NULL);
}

bool worker_stop_until(struct worker *w, int64_t until_ms)
{
    int64_t left = until_ms - clock_mono_ms();
    if (!w)
        return true;
    request_stop(w);
    if (!stop_flag_wait(&w->ended, left > 0 ? left : 0))
        return false;
    pthread_join(w->thread, NULL);
    return true;
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    for (struct entry *e = w->first, *next; e; e = next) {
        next = e->next;
        free(e->job);
        free(e);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->cond);
    stop_flag_fini(&w->ended);
    free(w);
}
