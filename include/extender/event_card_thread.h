/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/event_recorder.h"
#include "extender/store.h"

/*
 * The thread that looks at all nodes once a second, if anything has changed or is left to
 * tell, and lets extender/nodewatch.h tell of it. Of several replicas, only the holder of
 * the lease tells; the others look, and what comes too late for it to have told they tell
 * when they get the lease.
 */

struct event_card_thread;

/* New; the thread runs at once. What is handed over is borrowed. */
struct event_card_thread *event_card_thread_start(struct store *store,
                                                  struct event_recorder *recorder,
                                                  uint64_t seed);
void event_card_thread_stop(
    struct event_card_thread *n); /* joins the thread; NULL is accepted */
void event_card_thread_free(struct event_card_thread *n); /* NULL is accepted */
