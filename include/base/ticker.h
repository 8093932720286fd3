/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * The thread that lets time pass for a machine that is told of it: it ticks when the
 * machine is due, and once a second in any case.
 */

struct ticker;

struct ticker_fns {
    void (*tick)(void *ctx);
    int64_t (*due)(void *ctx); /* when to tick next, as of clock_mono_ms */
};

struct ticker *ticker_new(void);
/* Starts the thread; it ticks at once. `ctx` is borrowed. */
void ticker_start(struct ticker *t, const struct ticker_fns *fns, void *ctx);
/* It is due earlier than it was. From any thread, also before the start and after the
 * stop; never blocks for long. */
void ticker_wake(struct ticker *t);
void ticker_stop(struct ticker *t); /* joins the thread, if it was started */
void ticker_free(struct ticker *t); /* NULL is accepted */
