/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "extender/calls.h"

/*
 * The core and its lock.
 *
 * Threads bring inputs and read; nothing that blocks, logs or calls out happens under the
 * lock. Outputs are carried out after it is released: a bind's own calls in the thread of
 * the bind, everything else by whoever is told through `struct store_io`.
 *
 * The lock prefers writers: with many filters in a loop, a bind would otherwise wait for
 * seconds (see docs/threads.md).
 */

struct store;

struct store_io {
    /* CORE_LIST or CORE_WATCH: to be started by the watch thread. Must not block. */
    void (*stream)(void *ctx, const struct core_output *output);
    /* A call that no bind is waiting for right here. Must not block. */
    void (*defer)(void *ctx, const struct core_output *call);
    /* Performs a call and waits for its end. */
    void (*perform)(void *ctx, const struct core_output *call, struct arena *arena,
                    struct call_answer *answer);
    /* When to tick next has moved: what is waiting for store_due should look again. */
    void (*hurry)(void *ctx);
    void *ctx;
};

/* New. `io` is copied. */
struct store *store_new(const struct core_settings *settings, const struct store_io *io);
/* `fn` is called, from any thread and with nothing locked, after the ledger has changed.
 * It must not block. Before anything else is done with the store. */
void store_on_change(struct store *store, void (*fn)(void *ctx), void *ctx);
/* No thread may be in any of its functions. */
void store_free(struct store *store);

/* As core_advertise: before the first input. */
void store_advertise(struct store *store, const char *address);

/* Reading: the core is borrowed, and does not change, until store_read_end. */
const struct core *store_read(struct store *store);
void store_read_end(struct store *store);

/* The time as the core wants it. */
struct core_time store_now(void);

/* Takes one input, and has the outputs carried out. */
void store_input(struct store *store, const struct core_input *in);
/* Monotonic time of the next tick. */
int64_t store_due(struct store *store);

struct store_bind {
    struct span ns, name, uid, node;
};

/* Binds a pod: blocks until the outcome is known, for 15 s at most. While this process
 * does not hold the lease it waits for it, for a little more than a lease's time. -1: not
 * bound, or not known to be; err says why. ERR_UNAVAILABLE with `*ready` false: no full
 * list yet. */
int store_bind(struct store *store, const struct store_bind *bind, bool *ready,
               struct err *err);

/* Where a bind is to be done now; *ready and err as with store_bind. */
struct store_way {
    enum bind_route_kind route;
    char address[300]; /* FORWARD */
    int64_t until_ms;  /* FORWARD: as in core/core.h */
    bool stopping;     /* this process is */
};
struct store_way store_way(struct store *store, bool forwarded, bool *ready,
                           struct err *err);
/* The lease may have changed hands: it is looked at soon. */
void store_look(struct store *store);
/* Waits so long, or until binds may be started here. */
void store_wait(struct store *store, int64_t ms);

/* Takes no more binds; the lease is given back as soon as none is in flight. */
void store_begin_stop(struct store *store);
/* Takes no more binds, waits until none is in flight and gives the lease back. False when
 * that took too long: the lease then runs out by itself. */
bool store_stop(struct store *store, int64_t timeout_ms);
