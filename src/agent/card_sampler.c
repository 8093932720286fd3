/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/card_sampler.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pause.h"

enum {
    SLICE_MS = 500,        /* so soon a new interval, or a stop, is noticed */
    REOPEN_MS = 60 * 1000, /* between two new beginnings for a lost card */
    STOP_MS = 2000,
};

struct card_sampler {
    struct gpu *gpu;
    struct card_sampler_fns fns;
    struct gpu_sample sample;
    int64_t reopened_ms;
    pthread_t thread;
    struct pause stop, end; /* it shall end, it has */
};

static void sample(struct card_sampler *s, bool lost)
{
    struct err err = {0};
    int64_t now = clock_mono_ms();
    if (lost && now - s->reopened_ms >= REOPEN_MS) {
        s->reopened_ms = now;
        gpu_reopen(s->gpu);
    }
    int rc = gpu_sample(s->gpu, &s->sample, &err);
    s->fns.input(s->fns.ctx, &(struct publisher_input){.type = PUBLISHER_SAMPLED,
                                                     .sample = &s->sample,
                                                     .err = rc ? &err : NULL,
                                                     .retry_after_ms = -1});
}

/* Waits for an event, a little. Sources that know none, or answer early, do not make it
 * spin. True: stop. */
static bool wait_a_little(struct card_sampler *s, int64_t ms)
{
    struct gpu_event event = {0};
    struct err err;
    int64_t before = clock_mono_ms();
    int rc = gpu_wait(s->gpu, (int)ms, &event, &err);
    if (rc == 0 && event.kind != GPU_EVENT_NONE) {
        s->fns.input(s->fns.ctx, &(struct publisher_input){.type = PUBLISHER_EVENT,
                                                         .event = &event,
                                                         .retry_after_ms = -1});
        return pause_for(&s->stop, 0);
    }
    int64_t rest = ms - (clock_mono_ms() - before);
    return pause_for(&s->stop, rest > 0 ? rest : 0);
}

static bool wait_for_next(struct card_sampler *s, int64_t from_ms, bool *lost)
{
    for (;;) {
        int64_t rest = from_ms + s->fns.interval(s->fns.ctx, lost) - clock_mono_ms();
        if (rest <= 0)
            return pause_for(&s->stop, 0);
        if (wait_a_little(s, rest < SLICE_MS ? rest : SLICE_MS))
            return true;
    }
}

static void *run(void *arg)
{
    struct card_sampler *s = arg;
    bool lost = false;
    int64_t from;
    do {
        from = clock_mono_ms();
        sample(s, lost);
    } while (!wait_for_next(s, from, &lost));
    pause_end(&s->end);
    return NULL;
}

struct card_sampler *card_sampler_start(struct gpu *gpu, const struct card_sampler_fns *fns)
{
    struct card_sampler *s = xcalloc(1, sizeof *s);
    s->gpu = gpu;
    s->fns = *fns;
    s->reopened_ms = clock_mono_ms();
    pause_init(&s->stop);
    pause_init(&s->end);
    if (pthread_create(&s->thread, NULL, run, s))
        abort();
    pthread_setname_np(s->thread, "sampler");
    return s;
}

bool card_sampler_stop(struct card_sampler *s)
{
    if (!s)
        return true;
    pause_end(&s->stop);
    bool ended = pause_for(&s->end, STOP_MS);
    if (ended)
        pthread_join(s->thread, NULL);
    return ended;
}

void card_sampler_free(struct card_sampler *s)
{
    if (!s)
        return;
    gpu_sample_fini(&s->sample);
    pause_fini(&s->stop);
    pause_fini(&s->end);
    free(s);
}
