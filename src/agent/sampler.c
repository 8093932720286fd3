/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stop_flag.h"

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
    struct stop_flag stop, ended; /* it shall end, it has */
};

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
        return stop_flag_wait(&s->stop, 0);
    }
    int64_t rest = ms - (clock_mono_ms() - before);
    return stop_flag_wait(&s->stop, rest > 0 ? rest : 0);
}

static bool wait_for_next(struct sampler *s, int64_t from_ms, bool *lost)
{
    for (;;) {
        int64_t rest = from_ms + s->fns.interval(s->fns.ctx, lost) - clock_mono_ms();
        if (rest <= 0)
            return stop_flag_wait(&s->stop, 0);
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
    stop_flag_set(&s->ended);
    return NULL;
}

struct sampler *sampler_start(struct gpu *gpu, const struct sampler_fns *fns)
{
    struct sampler *s = xcalloc(1, sizeof *s);
    s->gpu = gpu;
    s->fns = *fns;
    s->reopened_ms = clock_mono_ms();
    stop_flag_init(&s->stop);
    stop_flag_init(&s->ended);
    if (pthread_create(&s->thread, NULL, run, s))
        abort();
    pthread_setname_np(s->thread, "sampler");
    return s;
}

bool sampler_stop(struct sampler *s)
{
    if (!s)
        return true;
    stop_flag_set(&s->stop);
    bool ended = stop_flag_wait(&s->ended, STOP_MS);
    if (ended)
        pthread_join(s->thread, NULL);
    return ended;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    gpu_sample_fini(&s->sample);
    stop_flag_fini(&s->stop);
    stop_flag_fini(&s->ended);
    free(s);
}
