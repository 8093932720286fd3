/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu.h"

/*
 * The thread that samples the cards and waits for their events.
 *
 * No other thread uses the source, because a call into the driver may never return. The
 * owner notices missing samples by the time of the last one.
 */

struct card_sampler;

struct card_sampler_fns {
    /* `sample` is NULL when it failed with `err`; else `err` is NULL. Both are borrowed
     * for the call, which may take the sample, and leaves {0} then. It took `took_ms`. */
    void (*on_sample)(void *ctx, struct gpu_sample *sample, const struct err *err,
                      int64_t took_ms);
    void (*on_event)(void *ctx, const struct gpu_event *event);
    /* Milliseconds from one sample to the next; asked every 500 ms. *reopen: reopen the
     * source before the next sample, at most once a minute. NVML finds a card that came
     * back only after that. */
    int64_t (*interval)(void *ctx, bool *reopen);
    void *ctx;
};

/* New; the thread runs at once. `gpu` is borrowed, `fns` is copied. */
struct card_sampler *card_sampler_start(struct gpu *gpu,
                                        const struct card_sampler_fns *fns);
/* Joins the thread. False: the thread hangs in the driver. Nothing that it uses may be
 * freed then; the process must exit as it is. NULL is accepted. */
bool card_sampler_stop(struct card_sampler *s);
void card_sampler_free(struct card_sampler *s); /* NULL is accepted */
