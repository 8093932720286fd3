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

struct observe;

struct observe_config {
    bool has_front;  /* X-Remote-User counts, from a client that the listener knows */
    int64_t grace_s; /* in which a heartbeat has to be renewed; 0: not judged */
    int64_t idle_ms; /* so long without a reader, and all is forgotten */
    int64_t
        heartbeat_ms; /* so long without news, and a watch says so; 0: it never does */
};
enum { OBSERVE_IDLE_MS = 5 * 60 * 1000, OBSERVE_HEARTBEAT_MS = 15 * 1000 };

/* New; starts the thread. `store` is borrowed. */
struct observe *observe_start(struct store *store, const struct observe_config *config);
/* Joins the thread. */
void observe_stop(struct observe *o);
/* When no stream is left. NULL is accepted. */
void observe_free(struct observe *o);
/* The ledger has changed. From any thread; cheap. */
void observe_changed(void *observe);

enum {
    OBSERVE_MAIN_WATCHES = 16,
    OBSERVE_LISTS = 64, /* at a time, on both ports together; each costs memory */
};

/* Handlers call these; `main` is the listener that has a thread for each watch. */
void observe_gpunodes(struct observe *o, bool main, const struct httpd_request *req,
                      struct httpd_reply *reply);
void observe_gpupods(struct observe *o, bool main, const struct httpd_request *req,
                     struct httpd_reply *reply);
void observe_discovery(struct httpd_reply *reply);
void observe_not_found(struct httpd_reply *reply);
void observe_not_allowed(struct httpd_reply *reply, const char *allow);
