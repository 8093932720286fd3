/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/dispatcher_msg.h"

/*
 * The dispatcher's thread owns the allocator and the endpoints. It takes the messages of all
 * other threads from one queue, feeds them to the allocator, and carries out the outputs in
 * order. Nothing of this needs a lock, because only this thread uses it.
 */

/* Actions that other threads carry out; the functions must not block. Strings are
 * borrowed. */
struct dispatcher_callbacks {
    void (*register_resource)(void *ctx, enum ids_resource r, const char *endpoint);
    /* ALLOC_QUERY, ALLOC_PATCH, ALLOC_EVENT, ALLOC_RELIST or ALLOC_READ_NODE. */
    void (*carry_out)(void *ctx, const struct alloc_output *o);
    void *ctx;
    /* The allocations as text, at the start and after each change. */
    void (*saved)(void *saved_ctx, struct span state);
    void *saved_ctx;
};

struct dispatcher;

/* New; reads the state file. `dir`: the kubelet's device plugin directory. Strings, also of
 * `settings`, are borrowed. */
struct dispatcher *dispatcher_new(const struct alloc_settings *settings, const char *dir,
                                  const char *state_file, struct err *err);
/* Starts the thread. */
void dispatcher_start(struct dispatcher *d, const struct dispatcher_callbacks *callbacks);
/* An input for the allocator. New. */
struct dispatcher_msg *dispatcher_input_new(enum alloc_input_type type);
/* Takes the message. From any thread; never blocks. */
void dispatcher_post(struct dispatcher *d, struct dispatcher_msg *m);
/* A container of the pod runs without its limit: one Event is written for the pod. From any thread. */
void dispatcher_unlimited(struct dispatcher *d, const char *uid, const char *why);
/* Waits briefly for requests in flight, stops serving, and joins the thread. */
void dispatcher_stop(struct dispatcher *d);
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
    struct dispatcher_resource_stats {
        bool wanted;
        struct err err; /* code ERR_NONE: registered */
    } resources[IDS_RESOURCES];
    int64_t alive_ms; /* clock_mono_ms of the thread's last iteration */
};
void dispatcher_stats(struct dispatcher *d, struct dispatcher_stats *stats);
