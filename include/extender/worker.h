/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"

/*
 * A thread that makes calls one after the other, in the order in which they came, and
 * hands the answers to the store.
 */

struct worker;

typedef void (*worker_perform_fn)(void *ctx, const struct core_output *call,
                                  struct arena *arena, struct call_answer *answer);

/* New; the thread runs at once. `name` is a static string of at most 15 bytes. */
struct worker *worker_start(const char *name, struct store *store,
                            worker_perform_fn perform, void *ctx);
/* Copies the call into the queue. Never blocks. */
void worker_add(struct worker *w, const struct core_output *call);
/* Lets the call under way end and joins the thread; what is still added is dropped. All
 * threads of the program stop before any of what they share is freed. NULL is accepted.
 */
void worker_stop(struct worker *w);
void worker_free(struct worker *w);
