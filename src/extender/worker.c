/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/worker.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

struct entry {
    struct core_output *call;
    struct entry *next;
};

struct worker {
    struct store *store;
    worker_perform_fn perform;
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the queue and stop */
    pthread_cond_t cond;
    struct entry *first, **end;
    bool stop;
};

static struct core_output *take(struct worker *w)
{
    struct core_output *call = NULL;
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->stop)
        pthread_cond_wait(&w->cond, &w->lock);
    if (!w->stop) {
        struct entry *e = w->first;
        call = e->call;
        w->first = e->next;
        if (!w->first)
            w->end = &w->first;
        free(e);
    }
    pthread_mutex_unlock(&w->lock);
    return call;
}

static void *run(void *arg)
{
    struct worker *w = arg;
    cleanup_arena struct arena arena = {0};
    struct core_output *call;
    while ((call = take(w)) != NULL) {
        struct call_answer answer;
        arena_reset(&arena);
        w->perform(w->ctx, call, &arena, &answer);
        store_input(w->store, &answer.input);
        free(call);
    }
    return NULL;
}

struct worker *worker_start(const char *name, struct store *store,
                            worker_perform_fn perform, void *ctx)
{
    struct worker *w = xcalloc(1, sizeof *w);
    w->store = store;
    w->perform = perform;
    w->ctx = ctx;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->cond, NULL);
    if (pthread_create(&w->thread, NULL, run, w))
        abort();
    pthread_setname_np(w->thread, name);
    return w;
}

void worker_add(struct worker *w, const struct core_output *call)
{
    struct entry *e = xcalloc(1, sizeof *e);
    e->call = core_output_dup(call);
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
        free(e->call);
        free(e);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->cond);
    free(w);
}
