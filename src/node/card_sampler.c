/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that samples the cards and waits for their events. */
#include "node/card_sampler.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum {
    SLICE_MS = 500, /* bounds the delay until a stop or a new interval takes effect */
    REOPEN_MS = 60 * 1000,
    STOP_MS = 2000,
};

struct card_sampler {
    struct gpu *gpu;
    struct card_sampler_fns fns;
    struct gpu_sample sample;
    int64_t reopened_ms;
    uint64_t unchecked;    /* hash of what was logged */
    struct worker *worker; /* with one job that ends at a stop */
};

static void sample(struct card_sampler *s, bool reopen)
{
    struct err err = {0};
    int64_t now = clock_mono_ms();
    if (reopen && now - s->reopened_ms >= REOPEN_MS) {
        s->reopened_ms = now;
        gpu_reopen(s->gpu);
    }
    if (gpu_sample(s->gpu, &s->sample, &err)) {
        s->fns.on_sample(s->fns.ctx, NULL, &err, clock_mono_ms() - now);
        return;
    }
    /* A check that does not run finds nothing, which reads as health. */
    uint64_t hash = 0;
    for (size_t i = 0; i < s->sample.n_cards; i++) {
        const char *why = s->sample.cards[i].unchecked;
        hash = hash_bytes(hash, why, strlen(why) + 1);
    }
    for (size_t i = 0; hash != s->unchecked && i < s->sample.n_cards; i++) {
        const struct gpu_card *c = &s->sample.cards[i];
        if (*c->unchecked)
            log_warn("cards", "not every check of a card can run",
                     LOG_I("card", c->index), LOG_S("uuid", c->uuid),
                     LOG_S("why", c->unchecked));
    }
    s->unchecked = hash;
    s->fns.on_sample(s->fns.ctx, &s->sample, NULL, clock_mono_ms() - now);
}

/* Waits at most `ms` for an event. Sources without events return early: the rest of the
 * time is waited here. True: stop. */
static bool wait_for_event(struct card_sampler *s, int64_t ms)
{
    struct gpu_event event = {0};
    struct err err;
    int64_t before = clock_mono_ms();
    if (gpu_wait(s->gpu, (int)ms, &event, &err) == 0 && event.kind != GPU_EVENT_NONE) {
        s->fns.on_event(s->fns.ctx, &event);
        return worker_rest(s->worker, 0);
    }
    int64_t rest = ms - (clock_mono_ms() - before);
    return worker_rest(s->worker, rest > 0 ? rest : 0);
}

static bool wait_for_next(struct card_sampler *s, int64_t from_ms, bool *reopen)
{
    for (;;) {
        *reopen = false;
        int64_t rest = from_ms + s->fns.interval(s->fns.ctx, reopen) - clock_mono_ms();
        if (rest <= 0)
            return worker_rest(s->worker, 0);
        if (wait_for_event(s, rest < SLICE_MS ? rest : SLICE_MS))
            return true;
    }
}

static void sample_cards(void *ctx, void *job)
{
    struct card_sampler *s = ctx;
    bool reopen = false;
    int64_t from;
    (void)job;
    do {
        from = clock_mono_ms();
        sample(s, reopen);
    } while (!wait_for_next(s, from, &reopen));
}

struct card_sampler *card_sampler_start(struct gpu *gpu,
                                        const struct card_sampler_fns *fns)
{
    struct card_sampler *s = xcalloc(1, sizeof *s);
    s->gpu = gpu;
    s->fns = *fns;
    s->reopened_ms = clock_mono_ms();
    s->worker = worker_start("sampler", sample_cards, s);
    worker_add(s->worker, xcalloc(1, 1));
    return s;
}

bool card_sampler_stop(struct card_sampler *s)
{
    return !s || worker_stop_until(s->worker, clock_mono_ms() + STOP_MS);
}

void card_sampler_free(struct card_sampler *s)
{
    if (!s)
        return;
    worker_free(s->worker);
    gpu_sample_fini(&s->sample);
    free(s);
}
