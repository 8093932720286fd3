/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * A thread with a queue of jobs, which it runs one at a time in the order of arrival.
 */

struct worker;

/* New; the thread starts at once. `name` is a static string of at most 15 bytes; `ctx` is
 * borrowed. `work` borrows the job. */
struct worker *worker_start(const char *name, void (*work)(void *ctx, void *job),
                            void *ctx);
/* Takes the job, which is released with free after `work` returns. Never blocks. */
void worker_add(struct worker *w, void *job);
/* Waits for the running job and joins the thread. Queued jobs are not run; worker_free
 * releases them. Stop all threads before freeing anything that they share. NULL is
 * accepted. */
void worker_stop(struct worker *w);
/* As worker_stop, until `until_ms` on the monotonic clock (clock_mono_ms). False: the job
 * still runs; neither the worker nor what it uses may be freed. */
bool worker_stop_until(struct worker *w, int64_t until_ms);
void worker_free(struct worker *w);
