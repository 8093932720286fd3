/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/card_input.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "node/card_sampler.h"

enum { VIEW_MS = 60 * 1000 }; /* time between two looks at unchanged cards */

/* Only the sampler's thread uses the members below `dispatcher`. */
struct card_input {
    struct card_sampler *sampler;
    int64_t interval_ms;
    struct dispatcher *dispatcher;
    struct driver_view_settings driver;
    struct buf seen; /* driver and cards that the last view was made of */
    int64_t viewed_ms;
    size_t most_cards; /* in any sample */
    bool any_lost, mig_logged;
    char last_error[256];
};

static void convert(const struct gpu_card *card, struct card_seen *seen)
{
    const char *reason;
    *seen = (struct card_seen){.index = card->index,
                               .minor = (int32_t)gpu_value(card, GPU_MINOR, -1),
                               .mib = gpu_value(card, GPU_MEM_TOTAL, 0) >> 20,
                               .reading = card_health_read(card, &reason)};
    snprintf(seen->uuid, sizeof seen->uuid, "%s", card->uuid);
    snprintf(seen->model, sizeof seen->model, "%s", card->model);
    snprintf(seen->reason, sizeof seen->reason, "%s", reason);
}

static void log_mig(struct card_input *in, const struct gpu_card *card)
{
    if (!in->mig_logged)
        log_warn("cards", "a card in MIG mode is not listed", LOG_S("card", card->uuid),
                 LOG_I("index", card->index));
    in->mig_logged = true;
}

/* Other programs write specifications, and device nodes come late after a boot. */
static bool is_view_due(struct card_input *in, const struct gpu_sample *sample)
{
    cleanup_buf struct buf now = {0};
    buf_adds(&now, sample->driver);
    for (size_t i = 0; i < sample->n_cards; i++) {
        const struct gpu_card *card = &sample->cards[i];
        buf_printf(&now, " %d/%lld/%s", card->index,
                   (long long)gpu_value(card, GPU_MINOR, -1), card->uuid);
    }
    if (span_eq(buf_span(&now), buf_span(&in->seen)) &&
        clock_mono_ms() < in->viewed_ms + VIEW_MS)
        return false;
    buf_clear(&in->seen);
    buf_add(&in->seen, now.p, now.n);
    in->viewed_ms = clock_mono_ms();
    return true;
}

static void post_sample(struct card_input *in, const struct gpu_sample *sample)
{
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_CARDS);
    m->seen = arena_zalloc(&m->arena, (sample->n_cards + 1) * sizeof *m->seen);
    in->last_error[0] = '\0';
    in->any_lost = sample->n_cards < in->most_cards;
    if (sample->n_cards > in->most_cards)
        in->most_cards = sample->n_cards;
    for (size_t i = 0; i < sample->n_cards; i++) {
        const struct gpu_card *card = &sample->cards[i];
        in->any_lost |= card->state == GPU_LOST;
        if (card->state == GPU_MIG)
            log_mig(in, card);
        else
            convert(card, &m->seen[m->n++]);
    }
    if (is_view_due(in, sample))
        m->driver = driver_view_new(&in->driver, sample->driver, m->seen, m->n);
    dispatcher_post(in->dispatcher, m);
}

static void post_failure(struct card_input *in, const struct err *err)
{
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_CARDS);
    m->text = arena_copy(&m->arena, span_of(err->msg)).p;
    if (strcmp(in->last_error, err->msg) != 0)
        log_warn("cards", "cannot sample; retrying", LOG_ERR(err),
                 LOG_I("interval_ms", in->interval_ms));
    snprintf(in->last_error, sizeof in->last_error, "%s", err->msg);
    dispatcher_post(in->dispatcher, m);
}

static void on_sample(void *ctx, const struct gpu_sample *sample, const struct err *err)
{
    if (sample)
        post_sample(ctx, sample);
    else
        post_failure(ctx, err);
}

static void on_event(void *ctx, const struct gpu_event *event)
{
    struct card_input *in = ctx;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_CARD_EVENT);
    m->card_event = *event;
    dispatcher_post(in->dispatcher, m);
}

static int64_t interval(void *ctx, bool *reopen)
{
    const struct card_input *in = ctx;
    *reopen = in->any_lost;
    return in->interval_ms;
}

struct card_input *card_input_start(struct gpu *gpu, int64_t interval_ms,
                                    const struct driver_view_settings *driver,
                                    struct dispatcher *dispatcher)
{
    struct card_input *in = xcalloc(1, sizeof *in);
    const struct card_sampler_fns fns = {on_sample, on_event, interval, in};
    in->interval_ms = interval_ms;
    in->dispatcher = dispatcher;
    in->driver = *driver;
    in->sampler = card_sampler_start(gpu, &fns);
    return in;
}

bool card_input_stop(struct card_input *in)
{
    return !in || card_sampler_stop(in->sampler);
}

void card_input_free(struct card_input *in)
{
    if (!in)
        return;
    card_sampler_free(in->sampler);
    buf_fini(&in->seen);
    free(in);
}
