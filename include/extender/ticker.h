/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"

/*
 * The thread that lets time pass for the core: it ticks when the core is due, and once a
 * second in any case.
 */

struct ticker;

struct ticker *ticker_new(void);
/* Starts the thread. `store` is borrowed. */
void ticker_start(struct ticker *t, struct store *store);
/* The core is due earlier than it was. From any thread, also before the start and after
 * the stop; never blocks for long. */
void ticker_hurry(struct ticker *t);
void ticker_stop(struct ticker *t); /* joins the thread, if it was started */
void ticker_free(struct ticker *t); /* NULL is accepted */
