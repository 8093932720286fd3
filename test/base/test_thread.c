/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include "base/clock.h"
#include "lib/unit.h"

struct gate {
    struct stop_flag entered, leave;
    int done;
};

static void pass(void *ctx, void *job)
{
    struct gate *g = ctx;
    (void)job;
    stop_flag_set(&g->entered);
    stop_flag_wait(&g->leave, 60000);
    g->done++;
}

TEST(a_stop_returns_when_its_time_is_up)
{
    struct gate g = {0};
    stop_flag_init(&g.entered);
    stop_flag_init(&g.leave);
    struct worker *w = worker_start("test", pass, &g);
    worker_add(w, xmalloc(1));
    worker_add(w, xmalloc(1)); /* queued: never runs */
    ck_assert(stop_flag_wait(&g.entered, 60000));
    ck_assert(!worker_stop_until(w, clock_mono_ms() + 20));
    ck_assert(!worker_stop_until(w, 0)); /* a time in the past */
    stop_flag_set(&g.leave);
    ck_assert(worker_stop_until(w, clock_mono_ms() + 60000));
    ck_assert_int_eq(g.done, 1);
    worker_free(w);
    stop_flag_fini(&g.entered);
    stop_flag_fini(&g.leave);
    ck_assert(worker_stop_until(NULL, 0));
}

struct event {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
};

static void *signal_event(void *arg)
{
    struct event *s = arg;
    pthread_mutex_lock(&s->lock);
    s->done = true;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->lock);
    return NULL;
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
