/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/cardwatch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pause.h"

enum {
    SLICE_MS = 500, /* so soon a stop is noticed */
    STOP_MS = 2000,
    REOPEN_MS = 60 * 1000, /* NVML sees a card that came back only when begun anew */
};

struct cardwatch {
    struct gpu *gpu;
    struct dispatcher *dispatcher;
    int64_t interval_ms, reopened_ms;
    struct gpu_sample sample;
    bool lost, mig_said;
    char last_error[256];
    pthread_t thread;
    struct pause stop, end; /* it shall end, it has */
};

bool cardwatch_card(const struct gpu_card *card, struct card_seen *seen)
{
    *seen = (struct card_seen){.index = card->index};
    if (card->state == GPU_MIG)
        return false;
    snprintf(seen->uuid, sizeof seen->uuid, "%s", card->uuid);
    snprintf(seen->model, sizeof seen->model, "%s", card->model);
    seen->mib = gpu_value(card, GPU_MEM_TOTAL, 0) >> 20;
    if (card->state != GPU_OK)
        snprintf(seen->ill, sizeof seen->ill, "%s",
                 card->why[0] ? card->why : gpu_state_name(card->state));
    else if (!gpu_knows(card, GPU_MEM_TOTAL))
        snprintf(seen->ill, sizeof seen->ill, "the size of its memory is not known");
    return true;
}

static void tell_cards(struct cardwatch *s)
{
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_CARDS);
    m->seen = arena_zalloc(&m->arena, (s->sample.n_cards + 1) * sizeof *m->seen);
    s->lost = false;
    for (size_t i = 0; i < s->sample.n_cards; i++) {
        const struct gpu_card *card = &s->sample.cards[i];
        s->lost |= card->state == GPU_LOST;
        if (cardwatch_card(card, &m->seen[m->n])) {
            m->n++;
        } else if (!s->mig_said) {
            log_warn("gpu", "a card is split into MIG instances and left out",
                     LOG_S("card", card->uuid), LOG_I("index", card->index));
            s->mig_said = true;
        }
    }
    dispatcher_post(s->dispatcher, m);
}

static void tell_failure(struct cardwatch *s, const struct err *err)
{
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_CARDS);
    m->text = arena_copy(&m->arena, span_of(err->msg)).p;
    if (strcmp(s->last_error, err->msg) != 0)
        log_warn("gpu", "the cards cannot be read; trying on", LOG_ERR(err));
    snprintf(s->last_error, sizeof s->last_error, "%s", err->msg);
    dispatcher_post(s->dispatcher, m);
}

static void sample(struct cardwatch *s)
{
    struct err err = {0};
    int64_t now = clock_mono_ms();
    if (s->lost && now - s->reopened_ms >= REOPEN_MS) {
        s->reopened_ms = now;
        gpu_reopen(s->gpu);
    }
    if (gpu_sample(s->gpu, &s->sample, &err)) {
        tell_failure(s, &err);
        return;
    }
    s->last_error[0] = '\0';
    tell_cards(s);
}

static void tell_event(struct cardwatch *s, const struct gpu_event *event)
{
    if (event->kind == GPU_EVENT_XID && gpu_xid_is_of_program(event->xid))
        return;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_CARD_FAILED);
    cleanup_buf struct buf what = {0};
    if (event->kind == GPU_EVENT_XID)
        buf_printf(&what, "XID %lld", (long long)event->xid);
    else
        buf_adds(&what, "an error of ECC that could not be corrected");
    m->text = arena_copy(&m->arena, buf_span(&what)).p;
    m->uuid = arena_copy(&m->arena, span_of(event->uuid)).p;
    dispatcher_post(s->dispatcher, m);
}

/* Sources that know no events, or answer early, do not make it spin. True: stop. */
static bool wait_a_little(struct cardwatch *s, int64_t ms)
{
    struct gpu_event event = {0};
    struct err err;
    int64_t before = clock_mono_ms();
    if (gpu_wait(s->gpu, (int)ms, &event, &err) == 0 && event.kind != GPU_EVENT_NONE) {
        tell_event(s, &event);
        return pause_for(&s->stop, 0);
    }
    int64_t rest = ms - (clock_mono_ms() - before);
    return pause_for(&s->stop, rest > 0 ? rest : 0);
}

static void sample_on_and_on(struct cardwatch *s)
{
    do {
        int64_t next = clock_mono_ms() + s->interval_ms, rest;
        sample(s);
        while ((rest = next - clock_mono_ms()) > 0)
            if (wait_a_little(s, rest < SLICE_MS ? rest : SLICE_MS))
                return;
    } while (!pause_for(&s->stop, 0));
}

static void *run(void *arg)
{
    struct cardwatch *s = arg;
    sample_on_and_on(s);
    pause_end(&s->end);
    return NULL;
}

struct cardwatch *cardwatch_start(struct gpu *gpu, int64_t interval_ms,
                                  struct dispatcher *dispatcher)
{
    struct cardwatch *s = xcalloc(1, sizeof *s);
    s->gpu = gpu;
    s->interval_ms = interval_ms;
    s->dispatcher = dispatcher;
    s->reopened_ms = clock_mono_ms();
    pause_init(&s->stop);
    pause_init(&s->end);
    if (pthread_create(&s->thread, NULL, run, s))
        abort();
    pthread_setname_np(s->thread, "cards");
    return s;
}

bool cardwatch_stop(struct cardwatch *s)
{
    if (!s)
        return true;
    pause_end(&s->stop);
    if (!pause_for(&s->end, STOP_MS))
        return false;
    pthread_join(s->thread, NULL);
    return true;
}

void cardwatch_free(struct cardwatch *s)
{
    if (!s)
        return;
    gpu_sample_fini(&s->sample);
    pause_fini(&s->stop);
    pause_fini(&s->end);
    free(s);
}
