/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * The thread that passes time to a state machine: it calls `tick` at the time that the
 * machine names, and at least once a second.
 */

struct ticker;

struct ticker_fns {
    void (*tick)(void *ctx);
    int64_t (*due)(void *ctx); /* time of the next tick, on clock_mono_ms */
};

struct ticker *ticker_new(void);
/* Starts the thread; the first tick is immediate. `ctx` is borrowed. */
void ticker_start(struct ticker *t, const struct ticker_fns *fns, void *ctx);
/* Ticks now, because the machine's next tick is due earlier than `due` returned. From any
 * thread, also before ticker_start and after ticker_stop; does not block. */
void ticker_wake(struct ticker *t);
void ticker_stop(struct ticker *t); /* joins the thread, if it was started */
void ticker_free(struct ticker *t); /* NULL is accepted */
