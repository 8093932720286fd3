/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sched.h>
#include <sys/types.h>

#include "bench/hostile.h"

/*
 * The hostile clients in a process of their own: in that of the honest clients, a thousand
 * threads would hold the locks of malloc.
 */

struct attackers {
    pid_t pid;
    int to, from; /* pipes */
};

/* Forks the process, which waits for its configuration. To be called before any thread is
 * started. `processors`: where it runs; empty: on all. */
struct attackers attackers_fork(const cpu_set_t *processors);
/* Starts the clients. False: the configuration names no kind of clients. Pointers in it
 * must be valid since before the fork. */
bool attackers_start(const struct attackers *a, const struct hostile_config *config);
/* Stops them, prints what each kind did, and waits for the end of the process. */
void attackers_stop(const struct attackers *a);
