/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/core_driver.h"
#include "extender/stream.h"

/*
 * The read-only API of nvidia-gpu-scheduler, with its paths and shapes: GpuNodes (the
 * cards of a node, and which of them are taken) and GpuPods (which container has which
 * cards), as lists and as watches. How a watch behaves: docs/api.md.
 *
 * All readers are served from one cache (extender/watch_cache.h), which exists while there
 * are readers and for a time after them. Each reader first brings it up to the ledger: the
 * nodes that have changed are rendered again.
 */

struct gpuapi;

struct gpuapi_config {
    int64_t grace_s;      /* grace period of heartbeats; 0: not checked */
    int64_t idle_ms;      /* without a reader for this time, the cache is dropped */
    int64_t heartbeat_ms; /* as in struct stream_kind */
};

enum {
    GPUAPI_WATCHES = 512,     /* concurrent watches on both ports ... */
    GPUAPI_MAIN_WATCHES = 16, /* ... and on the main port */
    GPUAPI_LISTS = 64,        /* concurrent lists on both ports */
    GPUAPI_IDLE_MS = 5 * 60 * 1000,
};

/* New. `driver` is borrowed. */
struct gpuapi *gpuapi_new(struct core_driver *driver, const struct gpuapi_config *config);
/* No stream may be open. NULL is accepted. */
void gpuapi_free(struct gpuapi *v);
/* Drops the cache if there were no readers for idle_ms; to be called regularly. Never blocks. */
void gpuapi_trim(struct gpuapi *v);

enum gpuapi_kind { GPUAPI_NODES, GPUAPI_PODS, GPUAPI_KINDS };

/* Answers with a list, or with a watch, which ends at client->end_ms. */
void gpuapi_answer(struct gpuapi *v, enum gpuapi_kind kind,
                   const struct stream_client *client, const struct httpd_request *req,
                   struct httpd_reply *reply);
