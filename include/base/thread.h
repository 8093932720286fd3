/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * What threads wait for: a condition with a deadline, a flag that is set once, a queue of
 * jobs, the next tick of a state machine. Times are on clock_mono_ms.
 */

/* Blocks SIGTERM and SIGINT in this thread and in the threads that it starts later, and
 * ignores SIGPIPE. To be called first in main. Returns the set for sigwait. */
sigset_t signals_block(void);

/* pthread_cond_wait until `until_ms`. False: that time has passed. The condition needs no
 * attributes. As after pthread_cond_wait, the caller checks what it waits for in a loop. */
bool thread_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ms);

/*
 * A flag that is set once and that threads can wait for with a timeout, like client-go's
 * stop channels. A periodic thread sleeps on it, so that stopping does not have to wait
 * for the period; a second flag can report that the thread has ended.
 */
struct stop_flag {
    pthread_mutex_t lock; /* protects is_set */
    pthread_cond_t cond;
    bool is_set;
};

void stop_flag_init(struct stop_flag *f);
void stop_flag_fini(struct stop_flag *f); /* no thread may use the flag any more */
/* Waits until the flag is set, at most `ms` milliseconds. Returns whether it is set. */
bool stop_flag_wait(struct stop_flag *f, int64_t ms);
/* Sets the flag and wakes every waiter. From any thread; does not block. */
void stop_flag_set(struct stop_flag *f);

/* A thread with a queue of jobs, which it runs one at a time in the order of arrival. */
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
/* As worker_stop, until `until_ms`. False: the job still runs; neither the worker nor what
 * it uses may be freed. */
bool worker_stop_until(struct worker *w, int64_t until_ms);
void worker_free(struct worker *w);

/* The thread that passes time to a state machine: it calls `tick` at the time that the
 * machine names, and at least once a second. */
struct ticker;

struct ticker_fns {
    void (*tick)(void *ctx);
    int64_t (*due)(void *ctx); /* time of the next tick */
};

struct ticker *ticker_new(void);
/* Starts the thread; the first tick is immediate. `ctx` is borrowed. */
void ticker_start(struct ticker *t, const struct ticker_fns *fns, void *ctx);
/* Ticks now, because the machine's next tick is due earlier than `due` returned. From any
 * thread, also before ticker_start and after ticker_stop; does not block. */
void ticker_wake(struct ticker *t);
void ticker_stop(struct ticker *t); /* joins the thread, if it was started */
void ticker_free(struct ticker *t); /* NULL is accepted */
