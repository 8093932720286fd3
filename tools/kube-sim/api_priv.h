/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/rng.h"
#include "kube-sim/api.h"
#include "kube-sim/store_priv.h"

/* What an API server consists of. */

enum { SWEEPS = 60 }; /* one a minute: after an hour events are removed */

/* A thing to do later to an object, if it is still the same one by then. */
struct errand {
    int64_t at_ms;
    enum errand_what { ERRAND_REMOVE, ERRAND_RUN } what;
    struct object *object; /* shared; its kind, key and UID say which one is meant */
};

struct frozen {
    bool on;
    uint64_t rv;
    struct object **items; /* shared */
    size_t n;
};

struct api {
    struct api_config config;
    uint64_t rv; /* the newest; every change takes the next one */
    struct rng rng;
    struct store stores[KINDS_N];
    struct frozen frozen[KINDS_N];
    struct api_watch *watches[KINDS_N]; /* lists of those that are open */
    struct errand *errands;
    size_t n_errands, cap_errands;
    uint64_t sweeps[SWEEPS]; /* versions at the sweeps of the last hour, a ring */
    size_t n_sweeps;
    int64_t next_sweep_ms;
    int64_t renewed_ms; /* up to here heartbeat Leases have been renewed */
    size_t next_lease;
    api_wake_fn wake;
    void *wake_ctx;
};

struct store *sim_api_store(struct api *api, const struct kind *kind);
