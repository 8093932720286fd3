/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/rng.h"
#include "kube-sim/api.h"
#include "kube-sim/store_priv.h"

/* The state of an API server. */

enum { SWEEPS = 60 }; /* one per minute: events are removed after an hour */

/* An action on an object at a later time, if the object still has the same UID then. */
struct timer {
    int64_t at_ms;
    enum timer_action { TIMER_REMOVE, TIMER_RUN } what;
    struct object *object; /* shared; kind, key and UID identify the object */
};

struct frozen {
    bool on;
    uint64_t rv;
    struct object **items; /* shared */
    size_t n;
};

struct api {
    struct api_config config;
    uint64_t rv; /* the newest version; each change increments it */
    struct rng rng;
    struct store stores[KINDS_N];
    struct frozen frozen[KINDS_N];
    struct api_watch *watches[KINDS_N]; /* linked lists of open watches */
    struct timer *timers;
    size_t n_timers, cap_timers;
    uint64_t sweeps[SWEEPS]; /* ring: the version at each sweep of the last hour */
    size_t n_sweeps;
    int64_t next_sweep_ms;
    int64_t renewed_ms; /* heartbeat Leases have been renewed up to this time */
    size_t next_lease;
    json_t *access; /* rules of the reviews, or NULL */
    api_wake_fn wake;
    void *wake_ctx;
};

struct store *sim_api_store(struct api *api, const struct kind *kind);
