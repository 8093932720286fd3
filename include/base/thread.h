/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * What threads wait for: a condition with a deadline, a queue of jobs, the next tick of a
 * state machine. Times are on clock_mono_ms.
 */

/* Blocks SIGTERM and SIGINT in this thread and in the threads that it starts later, and
 * ignores SIGPIPE. To be called first in main. Returns the set for sigwait. */
sigset_t signals_block(void);

/* pthread_cond_wait until `until_ms`. False: that time has passed. The condition needs no
 * attributes. As after pthread_cond_wait, the caller checks what it waits for in a loop. */
bool thread_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ms);

/*
 * A thread with a queue of jobs, which it runs one at a time in the order of arrival. It
 * can also pass time to a state machine: it ticks at the time that the machine names, and
 * at least once a second while it has no jobs. A waiting job always precedes a tick,
 * which can so be late by all jobs that wait.
 */
struct worker;

/* New; the thread starts at once. `name` is a static string of at most 15 bytes; `ctx` is
 * borrowed. `work` borrows the job; NULL is a tick. */
struct worker *worker_start(const char *name, void (*work)(void *ctx, void *job),
                            void *ctx);
/* Takes the job, which is released with free after `work` returns. Never blocks. */
void worker_add(struct worker *w, void *job);
/* Ticks from now on, for the first time at once; a stop right after this call can leave
 * no time for any tick. `due` returns the time of the next one; the thread calls it
 * between ticks and jobs, and can do so before the first tick. */
void worker_tick(struct worker *w, int64_t (*due)(void *ctx));
/* Ticks now, because the next tick is due earlier than `due` returned. From any thread,
 * also before worker_tick and after worker_stop; does not block. */
void worker_wake(struct worker *w);
/* In a job: waits until the worker is to stop, at most `ms` milliseconds. Returns whether
 * it is. */
bool worker_rest(struct worker *w, int64_t ms);
/* Waits for the running job and joins the thread. Queued jobs are not run; worker_free
 * releases them. Stop all threads before freeing anything that they share. Once. NULL is
 * accepted. */
void worker_stop(struct worker *w);
/* As worker_stop, until `until_ms`. False: the job still runs; neither the worker nor what
 * it uses may be freed. It may be called again after false, not after true. */
bool worker_stop_until(struct worker *w, int64_t until_ms);
/* Stops one that was not stopped. After a worker_stop_until that returned false it must
 * not be called, as it would free a running worker. NULL is accepted. */
void worker_free(struct worker *w);
