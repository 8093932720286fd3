/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include "base/clock.h"
#include "lib/unit.h"

struct event {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
};

#define EVENT                                                                            \
    {                                                                                    \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false                       \
    }

static void *signal_event(void *arg)
{
    struct event *s = arg;
    pthread_mutex_lock(&s->lock);
    s->done = true;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void wait_for_event(struct event *s)
{
    int64_t until_ms = clock_mono_ms() + 60000;
    pthread_mutex_lock(&s->lock);
    while (!s->done)
        ck_assert(thread_wait_until(&s->cond, &s->lock, until_ms));
    pthread_mutex_unlock(&s->lock);
}

struct gate {
    struct worker *worker;
    struct event entered, leave;
    int done, ticks;
    bool stops;
};

static void pass(void *ctx, void *job)
{
    struct gate *g = ctx;
    (void)job;
    signal_event(&g->entered);
    wait_for_event(&g->leave);
    g->done++;
}

TEST(a_stop_returns_when_its_time_is_up)
{
    struct gate g = {.entered = EVENT, .leave = EVENT};
    struct worker *w = worker_start("test", pass, &g);
    worker_add(w, xmalloc(1));
    worker_add(w, xmalloc(1)); /* queued: never runs */
    wait_for_event(&g.entered);
    ck_assert(!worker_stop_until(w, clock_mono_ms() + 20));
    ck_assert(!worker_stop_until(w, 0)); /* a time in the past */
    signal_event(&g.leave);
    ck_assert(worker_stop_until(w, clock_mono_ms() + 60000));
    ck_assert_int_eq(g.done, 1);
    worker_free(w);
    ck_assert(worker_stop_until(NULL, 0));
}

static void rest(void *ctx, void *job)
{
    struct gate *g = ctx;
    (void)job;
    ck_assert(!worker_rest(g->worker, 1));
    signal_event(&g->entered);
    g->stops = worker_rest(g->worker, 60000);
}

TEST(a_stop_ends_the_rest_of_a_job)
{
    struct gate g = {.entered = EVENT};
    g.worker = worker_start("test", rest, &g);
    worker_add(g.worker, xmalloc(1));
    wait_for_event(&g.entered);
    worker_free(g.worker); /* stops it */
    ck_assert(g.stops);
}

static void count(void *ctx, void *job)
{
    struct gate *g = ctx;
    *(job ? &g->done : &g->ticks) += 1;
    if (g->ticks == 2 && g->done)
        signal_event(&g->entered);
}

static int64_t in_an_hour(void *ctx)
{
    (void)ctx;
    return clock_mono_ms() + 3600 * 1000;
}

static int64_t long_ago(void *ctx)
{
    (void)ctx;
    return 0;
}

/* At once, when woken, and a second later; a worker without ticks is not woken. */
TEST(a_worker_ticks_beside_its_jobs)
{
    struct gate g = {.entered = EVENT};
    struct worker *w = worker_start("test", count, &g);
    int64_t begin_ms = clock_mono_ms();
    worker_wake(w);
    worker_add(w, xmalloc(1));
    worker_tick(w, in_an_hour);
    wait_for_event(&g.entered);
    ck_assert_int_ge(clock_mono_ms(), begin_ms + 1000);
    worker_stop(w);
    worker_wake(w);
    worker_free(w);
    ck_assert_int_eq(g.done, 1);
    g = (struct gate){.entered = EVENT, .done = 1};
    w = worker_start("test", count, &g);
    worker_tick(w, long_ago);
    wait_for_event(&g.entered);
    worker_free(w);
}

TEST(a_condition_has_a_deadline)
{
    struct event s = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    pthread_t thread;
    int64_t start = clock_mono_ms();
    pthread_mutex_lock(&s.lock);
    ck_assert(!thread_wait_until(&s.cond, &s.lock, start)); /* passed: does not wait */
    while (thread_wait_until(&s.cond, &s.lock, start + 20))
        continue;
    ck_assert_int_ge(clock_mono_ms(), start + 20);
    ck_assert_int_eq(pthread_create(&thread, NULL, signal_event, &s), 0);
    while (!s.done)
        ck_assert(thread_wait_until(&s.cond, &s.lock, start + 60000));
    pthread_mutex_unlock(&s.lock);
    pthread_join(thread, NULL);
}
