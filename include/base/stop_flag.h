/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A wait that somebody else can end, once and for all: how a thread that does something
 * now and then is told to stop, and how it tells that it has.
 */

struct stop_flag {
    pthread_mutex_t lock; /* protects ended */
    pthread_cond_t cond;
    bool ended;
};

void stop_flag_init(struct stop_flag *p);
void stop_flag_fini(struct stop_flag *p); /* nobody may be in any of its functions */
/* Waits so long, or until it is ended. Answers whether it is. */
bool stop_flag_wait(struct stop_flag *p, int64_t ms);
void stop_flag_set(struct stop_flag *p); /* from any thread; never blocks for long */
