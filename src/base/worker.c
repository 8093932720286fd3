/* SPDX-License-Identifier: Apache-2.0 */
#include "base/worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

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

void worker_stop(struct worker *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
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
    free(w);
}
