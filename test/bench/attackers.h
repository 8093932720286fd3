/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sched.h>

#include "bench/bench.h"

/*
 * Hostile clients of the extender, one thread each: silent, slow, huge, malformed and many
 * connections, with and without TLS. None of them has a credential. They run at the lowest
 * priority, so that on a small machine the server's work is measured and not theirs; and in
 * a process of their own: in that of the honest clients, a thousand threads would hold the
 * locks of malloc.
 */

struct hostile_config {
    unsigned main_port, observe_port;
    bool tls;
    size_t clients;   /* the kinds of clients take turns */
    size_t names;     /* node names in a large filter body */
    int64_t pause_ms; /* of a client between two attempts */
    const char *only; /* run clients of this kind; NULL: all kinds */
};

/* Forks the process, which waits for its configuration. `processors`: where it runs; empty:
 * on all. */
void attackers_fork(struct bench_child *a, const cpu_set_t *processors);
/* Starts the clients. False: the configuration names no kind of clients. Pointers in it
 * must be valid since before the fork. */
bool attackers_start(const struct bench_child *a, const struct hostile_config *config);
/* Stops them, prints what each kind did, and waits for the end of the process. */
void attackers_stop(const struct bench_child *a);
