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
    DISPATCHER_POD,           /* `pod` was added or changed */
    DISPATCHER_POD_DELETED,   /* `text`: its UID */
    DISPATCHER_LIST,          /* a pod list has ended (`flag`) or started */
    DISPATCHER_CARDS,         /* a sample: `seen` and `n`, or `text` with the error; and
                               * `driver`, if it was looked at */
    DISPATCHER_CARD_EVENT,    /* `card_event`: an XID or ECC error */
    DISPATCHER_REQUEST,       /* `request`; what it points to is in the arena */
    DISPATCHER_CANCEL,        /* `token`: the kubelet canceled the call */
    DISPATCHER_STREAM_OPENED, /* `resource`, `token`: a ListAndWatch stream */
    DISPATCHER_PODRESOURCES,  /* `view`; what it points to is in the arena */
    DISPATCHER_REGISTERED,    /* `resource`, `flag`: accepted, or `err` with the reason */
    DISPATCHER_NODE, /* `flag`: the Node has cgpu.disable.isolation=true; `node` */
};

/* Created by dispatcher_msg_new, filled in, and passed to dispatcher_post. */
struct dispatcher_msg {
    enum dispatcher_msg_kind kind;
    struct arena arena;
    struct pod_allocation *pod;
    const char *text;
    struct gpu_event card_event;
    struct card_seen *seen;
    size_t n;
    struct driver_view *driver;
    struct driver_node node;
    bool flag;
    enum ids_resource resource;
    uint64_t token;
    struct alloc_request request;
    struct alloc_kubelet_view view;
    struct err err;
    struct dispatcher_msg *next;
};

/* Actions that other threads carry out; the functions must not block. Strings are
 * borrowed. */
struct dispatcher_callbacks {
    /* podresources Get of the pod ns/name, or List if `ns` is NULL. */
    void (*query_pods)(void *ctx, uint64_t query, const char *ns, const char *name);
    void (*register_resource)(void *ctx, enum ids_resource r, const char *endpoint);
    void (*patch)(void *ctx, const struct alloc_output *o);
    void (*event)(void *ctx, const struct alloc_output *o);
    void (*relist)(void *ctx);
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
    uint64_t registered[IDS_RESOURCES], lost[IDS_RESOURCES];
    struct dispatcher_call_stats {
        uint64_t n, sum_us, max_us; /* of answered calls: number, durations */
    } calls[ALLOC_REQUEST_TYPES];
    uint64_t save_failed;
    uint64_t limited, limit_failed; /* containers answered with, without their limits */
    struct err cards_err;           /* code ERR_NONE: no failure */
    struct err registered_err[IDS_RESOURCES]; /* code ERR_NONE: registered */
    struct failure podresources;
    int64_t alive_ms; /* clock_mono_ms of the thread's last iteration */
};
void dispatcher_stats(struct dispatcher *d, struct dispatcher_stats *stats);
