/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "apisync/apisync.h"
#include "core/core.h"
#include "view/inspect.h"

/*
 * The core behind a read-write lock.
 *
 * Threads feed inputs to the core and read its state. Nothing under the lock blocks, logs
 * or does I/O. Outputs are executed after the lock is released: the API calls of a bind
 * by the thread of that bind, all others through `struct core_driver_io`.
 *
 * The lock prefers writers: with many filters in a loop, a bind would otherwise wait for
 * seconds (docs/architecture.md).
 */

struct core_driver;

struct core_driver_io {
    /* Starts a list or watch: CORE_LIST, CORE_WATCH. Must not block. */
    void (*stream)(void *ctx, const struct core_output *output);
    /* Queues an API call that no thread of a bind makes itself. Must not block. */
    void (*defer)(void *ctx, const struct core_output *call);
    /* Makes an API call and waits for its answer. */
    void (*perform)(void *ctx, const struct core_output *call, struct arena *arena,
                    struct apisync_answer *answer);
    /* core_driver_due now returns an earlier time. */
    void (*hurry)(void *ctx);
    void *ctx;
};

/* New. `io` is copied. */
struct core_driver *core_driver_new(const struct core_settings *settings,
                                    const struct core_driver_io *io);
/* No thread may be inside a function of the driver. NULL is accepted. */
void core_driver_free(struct core_driver *driver);

/* As core_advertise. To be called before the first input. */
void core_driver_advertise(struct core_driver *driver, const char *address);

/* Takes the read lock and borrows the core until core_driver_read_end. */
const struct core *core_driver_read(struct core_driver *driver);
void core_driver_read_end(struct core_driver *driver);

/* Whether every kind of object has been listed and is watched; -1: err (may be NULL) says why
 * not. */
int core_driver_ready(struct core_driver *driver, struct err *err);
/* The driver as the views read it. Borrowed. */
const struct view_source *core_driver_source(const struct core_driver *driver);

/* The current time, as the core takes it. */
struct step_time core_driver_now(void);

/* Steps the core with one input and executes the outputs. */
void core_driver_input(struct core_driver *driver, const struct core_input *in);
/* Monotonic time (ms) of the next CORE_TICK. */
int64_t core_driver_due(struct core_driver *driver);

struct core_driver_bind {
    struct span ns, name, uid, node;
    uint32_t gang_minimum; /* as in struct core_input */
    /* While the bind waits for something else than its own API calls, as one that is held for
     * its gang: `waits` is called once, and then `gone` now and again. True: the caller will
     * not read the outcome. NULL: not called. */
    void (*waits)(void *ctx);
    bool (*gone)(void *ctx);
    void *ctx;
};

/* Binds a pod. Blocks until the outcome is known, for 20 s at most in each call. -1: not
 * bound, or not known to be bound; err says why. Does not wait for the lease: *not_now is set if
 * this process may not bind now (CORE_BIND_NOT_NOW). */
int core_driver_bind(struct core_driver *driver, const struct core_driver_bind *bind,
                     bool *not_now, struct err *err);

/* The input CORE_RESERVE: reserves cards for a pod on the first of the nodes that fits
 * (core/core.h). *at: the index of the node of CORE_RESERVE_DONE and
 * CORE_RESERVE_PROMISED; n_nodes: of none. `why` (may be NULL) gets why a gang is
 * rejected or this process may not bind. */
enum core_reserve_outcome core_driver_reserve(struct core_driver *driver,
                                              const struct core_input *reserve,
                                              struct buf *why, size_t *at);

/* Which process is to do a bind now. */
struct core_driver_route {
    enum bind_route_kind route;
    char address[300]; /* FORWARD: HOST:PORT of the leader */
    int64_t until_ms;  /* FORWARD: when the lease expires; see core/core.h */
    bool stopping;     /* this process stops */
};
/* `forwarded`: another replica sent the bind. *ready: whether every kind of object has
 * been listed. err (may be NULL) says why not here. */
struct core_driver_route core_driver_route(struct core_driver *driver, bool forwarded,
                                           bool *ready, struct err *err);
/* Has the Lease read soon: another replica may hold it now. */
void core_driver_refresh_lease(struct core_driver *driver);
/* Waits for `ms` at most until this process may bind. It can return earlier; the caller asks
 * core_driver_route again. */
void core_driver_wait_may_bind(struct core_driver *driver, int64_t ms);

/* Accepts no more binds. The lease is released as soon as no bind is in flight. */
void core_driver_begin_stop(struct core_driver *driver);
/* As core_driver_begin_stop, and waits for the release. False: not released within
 * `timeout_ms`; the lease then expires. */
bool core_driver_stop(struct core_driver *driver, int64_t timeout_ms);
