/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A thread that does jobs one after the other, in the order in which they came.
 */

struct worker;

/* New; the thread runs at once. `name` is a static string of at most 15 bytes; `ctx` is
 * borrowed. `work` gets the job for as long as it runs. */
struct worker *worker_start(const char *name, void (*work)(void *ctx, void *job),
                            void *ctx);
/* Takes the job over, and releases it with free when it is done. Never blocks. */
void worker_add(struct worker *w, void *job);
/* Lets the job under way end and joins the thread; what is still added is dropped. All
 * threads of the program stop before any of what they share is freed. NULL is accepted.
 */
void worker_stop(struct worker *w);
void worker_free(struct worker *w);
