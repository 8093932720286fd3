/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A wait that somebody else can end, once and for all: how a thread that does something
 * now and then is told to stop, and how it tells that it has.
 */

struct pause {
    pthread_mutex_t lock; /* protects ended */
    pthread_cond_t cond;
    bool ended;
};

void pause_init(struct pause *p);
void pause_fini(struct pause *p); /* nobody may be in any of its functions */
/* Waits so long, or until it is ended. Answers whether it is. */
bool pause_for(struct pause *p, int64_t ms);
void pause_end(struct pause *p); /* from any thread; never blocks for long */
