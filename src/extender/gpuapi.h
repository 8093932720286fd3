/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/core_driver.h"
#include "wire/httpd.h"

/*
 * The read-only API of nvidia-gpu-scheduler, with its paths and shapes: GpuNodes (the
 * cards of a node, and which of them are taken) and GpuPods (which container has which
 * cards), as lists and as watches.
 *
 * One thread follows the ledger while the API has readers and publishes into a watch
 * cache (extender/gpuapi_priv.h) that serves all of them. So the cost on the ledger does
 * not depend on the number of readers. The first reader waits until the cache is filled.
 * How a watch behaves: docs/api.md.
 */

struct gpuapi;

struct gpuapi_config {
    int64_t grace_s;      /* grace period of heartbeats; 0: not checked */
    int64_t idle_ms;      /* without a reader for this time, the cache is dropped */
    int64_t heartbeat_ms; /* interval of the empty lines of an idle watch; 0: none */
};
enum { GPUAPI_IDLE_MS = 5 * 60 * 1000, GPUAPI_HEARTBEAT_MS = 15 * 1000 };

/* New; starts the thread. `driver` is borrowed. */
struct gpuapi *gpuapi_start(struct core_driver *driver,
                            const struct gpuapi_config *config);
/* Joins the thread. */
void gpuapi_stop(struct gpuapi *v);
/* No stream may be open. NULL is accepted. */
void gpuapi_free(struct gpuapi *v);
/* The ledger has changed (a callback for core_driver_on_change). From any thread; never blocks
 * for long. `ctx` is the gpuapi. */
void gpuapi_changed(void *ctx);

enum {
    GPUAPI_WATCHES = 512,     /* concurrent watches on both ports ... */
    GPUAPI_MAIN_WATCHES = 16, /* ... and on the main port */
    GPUAPI_LISTS = 64,        /* concurrent lists on both ports; each holds memory */
};

enum gpuapi_kind { GPUAPI_NODES, GPUAPI_PODS, GPUAPI_KINDS };

/* HTTP handler. `main`: the request came on the main port, where a watch occupies a
 * thread. A watch ends at `end_ms` (clock_mono_ms). */
void gpuapi_answer(struct gpuapi *v, enum gpuapi_kind kind, bool main, int64_t end_ms,
                   const struct httpd_request *req, struct httpd_reply *reply);
