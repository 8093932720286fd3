/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"
#include "wire/httpd.h"

/*
 * What nvidia-gpu-scheduler shows of a cluster, from what the extender knows: GpuNodes
 * (the cards of a node, and which are taken) and GpuPods (which container has which
 * cards), as lists and as watches, in its paths and shapes.
 *
 * A thread follows the ledger while there are readers; every one of them gets what it
 * has published, so that a thousand look at the ledger no more often than one. It begins
 * with the first, who waits for it. How a watch behaves:
 * extender/ watchlog.h, docs/api.md.
 */

struct view_gpuapi;

struct view_gpuapi_config {
    bool has_front;  /* X-Remote-User counts, from a client that the listener knows */
    int64_t grace_s; /* in which a heartbeat has to be renewed; 0: not judged */
    int64_t idle_ms; /* so long without a reader, and all is forgotten */
    int64_t
        heartbeat_ms; /* so long without news, and a watch says so; 0: it never does */
};
enum { VIEW_GPUAPI_IDLE_MS = 5 * 60 * 1000, VIEW_GPUAPI_HEARTBEAT_MS = 15 * 1000 };

/* New; starts the thread. `store` is borrowed. */
struct view_gpuapi *view_gpuapi_start(struct store *store,
                                      const struct view_gpuapi_config *config);
/* Joins the thread. */
void view_gpuapi_stop(struct view_gpuapi *o);
/* When no stream is left. NULL is accepted. */
void view_gpuapi_free(struct view_gpuapi *o);
/* The ledger has changed. From any thread; cheap. */
void view_gpuapi_changed(void *observe);

enum {
    VIEW_GPUAPI_MAIN_WATCHES = 16,
    VIEW_GPUAPI_LISTS = 64, /* at a time, on both ports together; each costs memory */
};

/* Handlers call these; `main` is the listener that has a thread for each watch. */
void view_gpuapi_gpunodes(struct view_gpuapi *o, bool main,
                          const struct httpd_request *req, struct httpd_reply *reply);
void view_gpuapi_gpupods(struct view_gpuapi *o, bool main,
                         const struct httpd_request *req, struct httpd_reply *reply);
void view_gpuapi_discovery(struct httpd_reply *reply);
void view_gpuapi_not_found(struct httpd_reply *reply);
void view_gpuapi_not_allowed(struct httpd_reply *reply, const char *allow);
