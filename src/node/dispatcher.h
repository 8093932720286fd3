/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/calls.h"

/*
 * The dispatcher's thread owns the allocator and the endpoints. It takes the messages of all
 * other threads from one queue, feeds them to the allocator, and carries out the outputs in
 * order. Nothing of this needs a lock, because only this thread uses it.
 */

struct dispatcher;

/* New; reads the state file. All are borrowed. */
struct dispatcher *dispatcher_new(const struct node_options *options,
                                  const struct alloc_settings *settings, struct err *err);
/* Starts the threads. `saved` gets the allocations as text, at the start and after each change. */
void dispatcher_start(struct dispatcher *d, struct kube_client *client,
                      void (*saved)(void *ctx, struct span state), void *ctx);
struct dispatcher_msg_queue *dispatcher_queue(struct dispatcher *d); /* borrowed */
/* Waits briefly for requests in flight, stops serving, and joins the threads, but for those of
 * calls: false: one of these is in flight at `until_ms` (clock_mono_ms), and nothing may be
 * freed. */
bool dispatcher_stop(struct dispatcher *d, int64_t until_ms);
void dispatcher_free(struct dispatcher *d); /* NULL is accepted */

/* A snapshot for /metrics and the health checks. */
struct dispatcher_stats {
    struct alloc_stats alloc;
    size_t allocations, cards, healthy;
    bool listed;
    bool admits; /* a pod's admission is under way */
    uint64_t save_failed;
    uint64_t limited, limit_failed; /* containers answered with, without their limits */
    uint8_t isolation;              /* response_isolation */
    bool node_read;
    char dialect[64];     /* as in struct alloc_state */
    char no_driver[256];  /* response_no_driver; empty: the driver limits */
    struct err cards_err; /* code ERR_NONE: no failure */
    struct step_failure podresources, node;
    struct informer_status watch; /* of the pods */
    struct dispatcher_resource_stats {
        bool wanted;
        struct err err; /* code ERR_NONE: registered */
    } resources[IDS_RESOURCES];
    int64_t alive_ms; /* clock_mono_ms of the thread's last iteration */
};
void dispatcher_stats(struct dispatcher *d, struct dispatcher_stats *stats);
