/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

enum {
    SLICE_MS = 500,        /* so soon a new interval, or a stop, is noticed */
    REOPEN_MS = 60 * 1000, /* between two new beginnings for a lost card */
    STOP_MS = 2000,
};

struct sampler {
    struct gpu *gpu;
    struct sampler_fns fns;
    struct gpu_sample sample;
    int64_t reopened_ms;
    pthread_t thread;
    pthread_mutex_t lock; /* protects stop and ended */
    pthread_cond_t cond;
    bool stop, ended;
};

static struct timespec in_ms(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms % 1000 * 1000000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static bool stopped_within(struct sampler *s, int64_t ms)
{
    struct timespec until = in_ms(ms);
    int timed_out = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->stop && !timed_out)
        timed_out = pthread_cond_timedwait(&s->cond, &s->lock, &until);
    bool stop = s->stop;
    pthread_mutex_unlock(&s->lock);
    return stop;
}

static void sample(struct sampler *s, bool lost)
{
    struct err err = {0};
    int64_t now = clock_mono_ms();
    if (lost && now - s->reopened_ms >= REOPEN_MS) {
        s->reopened_ms = now;
        gpu_reopen(s->gpu);
    }
    int rc = gpu_sample(s->gpu, &s->sample, &err);
    s->fns.input(s->fns.ctx, &(struct machine_input){.type = MACHINE_SAMPLED,
                                                     .sample = &s->sample,
                                                     .err = rc ? &err : NULL,
                                                     .retry_after_ms = -1});
}

/* Waits for an event, a little. Sources that know none, or answer early, do not make it
 * spin. True: stop. */
static bool wait_a_little(struct sampler *s, int64_t ms)
{
    struct gpu_event event = {0};
    struct err err;
    int64_t before = clock_mono_ms();
    int rc = gpu_wait(s->gpu, (int)ms, &event, &err);
    if (rc == 0 && event.kind != GPU_EVENT_NONE) {
        s->fns.input(s->fns.ctx, &(struct machine_input){.type = MACHINE_EVENT,
                                                         .event = &event,
                                                         .retry_after_ms = -1});
        return stopped_within(s, 0);
    }
    int64_t rest = ms - (clock_mono_ms() - before);
    return stopped_within(s, rest > 0 ? rest : 0);
}

static bool wait_for_next(struct sampler *s, int64_t from_ms, bool *lost)
{
    for (;;) {
        int64_t rest = from_ms + s->fns.interval(s->fns.ctx, lost) - clock_mono_ms();
        if (rest <= 0)
            return stopped_within(s, 0);
        if (wait_a_little(s, rest < SLICE_MS ? rest : SLICE_MS))
            return true;
    }
}

static void *run(void *arg)
{
    struct sampler *s = arg;
    bool lost = false;
    int64_t from;
    do {
        from = clock_mono_ms();
        sample(s, lost);
    } while (!wait_for_next(s, from, &lost));
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

struct sampler *sampler_start(struct gpu *gpu, const struct sampler_fns *fns)
{
    struct sampler *s = xcalloc(1, sizeof *s);
    pthread_condattr_t attr;
    s->gpu = gpu;
    s->fns = *fns;
    s->reopened_ms = clock_mono_ms();
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->cond, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&s->thread, NULL, run, s))
        abort();
    pthread_setname_np(s->thread, "sampler");
    return s;
}

bool sampler_stop(struct sampler *s)
{
    if (!s)
        return true;
    struct timespec until = in_ms(STOP_MS);
    int timed_out = 0;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->cond);
    while (!s->ended && !timed_out)
        timed_out = pthread_cond_timedwait(&s->cond, &s->lock, &until);
    bool ended = s->ended;
    pthread_mutex_unlock(&s->lock);
    if (ended)
        pthread_join(s->thread, NULL);
    return ended;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    gpu_sample_fini(&s->sample);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->cond);
    free(s);
}
