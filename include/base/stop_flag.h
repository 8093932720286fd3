/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

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
