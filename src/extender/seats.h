/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "wire/httpd.h"

/*
 * A limit of concurrent replies of one kind, such as watches: a client that reads slowly holds
 * one for long. The main port has a lower limit, because each occupies a thread there.
 */

struct seats {
    const char *what;   /* "watches" */
    unsigned most;      /* on both ports ... */
    unsigned main_most; /* ... and on the main port */
    atomic_uint taken, main_taken;
};

/* One more, until seats_give. False: `reply` is a 503. */
bool seats_take(struct seats *s, bool main, struct httpd_reply *reply);
void seats_give(struct seats *s, bool main);

/* Adds "Retry-After: 1" to a reply without headers. */
void seats_retry_after(struct httpd_reply *reply);
