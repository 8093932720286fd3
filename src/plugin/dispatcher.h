/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/alloc.h"

/*
 * The dispatcher thread owns the allocator and the registrations. It takes the messages
 * of all other threads from one queue, feeds them to the allocator, and carries out the
 * outputs in order. The allocator and the registrations need no lock, because only this
 * thread uses them.
 */

enum dispatcher_msg_kind {
    DISPATCHER_INPUT,         /* `in`: for the allocator */
    DISPATCHER_STREAM_OPENED, /* `resource`, `token`: a ListAndWatch stream */
    DISPATCHER_CALL_CLOSED,   /* `token`: a stream or call that the kubelet closed */
    DISPATCHER_REGISTERED,    /* `resource`, `flag`: accepted, or `err` with the reason */
};

/* Created by dispatcher_msg_new, filled in, and passed to dispatcher_post. */
struct dispatcher_msg {
    enum dispatcher_msg_kind kind;
    struct alloc_input in;
    struct arena arena; /* of what `in` points to */
    bool flag;
    enum ids_resource resource;
    uint64_t token;
    struct err err;
    struct dispatcher_msg *next;
};

/* Actions that other threads carry out; the functions must not block. Strings are
 * borrowed. */
struct dispatcher_callbacks {
    void (*register_resource)(void *ctx, enum ids_resource r, const char *endpoint);
    /* ALLOC_LIST, ALLOC_GET, ALLOC_PATCH, ALLOC_EVENT or ALLOC_RELIST. */
    void (*carry_out)(void *ctx, const struct alloc_output *o);
    void *ctx;
};

struct dispatcher_settings {
    struct alloc_settings alloc;
    const char *dir;   /* the kubelet's device plugin directory; borrowed */
    const char *state; /* path of the state file; borrowed */
    struct dispatcher_callbacks callbacks;
};

struct dispatcher;

/* New; reads the state file. dispatcher_start starts the thread. */
struct dispatcher *dispatcher_new(const struct dispatcher_settings *settings,
                                  struct err *err);
void dispatcher_start(struct dispatcher *d);
struct dispatcher_msg *dispatcher_msg_new(enum dispatcher_msg_kind kind); /* new */
/* An input for the allocator. New. */
struct dispatcher_msg *dispatcher_input_new(enum alloc_input_type type);
/* Takes the message. From any thread; never blocks. */
void dispatcher_post(struct dispatcher *d, struct dispatcher_msg *m);
/* Waits briefly for requests in flight, stops serving, and joins the thread. */
void dispatcher_stop(struct dispatcher *d);
void dispatcher_free(struct dispatcher *d); /* NULL is accepted */

/* A snapshot for /metrics and the health checks. */
struct dispatcher_stats {
    struct alloc_stats alloc;
    size_t allocations, cards, healthy, units;
    bool listed;
    bool up[IDS_RESOURCES], wanted[IDS_RESOURCES];
    uint64_t registered[IDS_RESOURCES];
    struct dispatcher_call_stats {
        uint64_t n, sum_us, max_us; /* of answered calls: number, durations */
    } calls[ALLOC_REQUEST_TYPES];
    uint64_t save_failed;
    uint64_t limited, limit_failed; /* containers answered with, without their limits */
    struct err cards_err;           /* code ERR_NONE: no failure */
    struct err registered_err[IDS_RESOURCES]; /* code ERR_NONE: registered */
    struct step_failure podresources;
    int64_t alive_ms; /* clock_mono_ms of the thread's last iteration */
};
void dispatcher_stats(struct dispatcher *d, struct dispatcher_stats *stats);
