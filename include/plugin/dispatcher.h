/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/alloc.h"

/*
 * The one thread that decides: it owns the allocator and the registrations, takes what
 * all other threads tell it out of one queue, and carries out what comes of it in order.
 * No lock protects the machines, because nobody else touches them.
 */

enum dispatcher_msg_kind {
    DISPATCHER_POD,           /* `pod` */
    DISPATCHER_POD_DELETED,   /* `text`: its uid */
    DISPATCHER_LIST,          /* `flag`: it has ended; else it begins */
    DISPATCHER_CARDS,         /* `seen` and `n`, or `text` says why there are none */
    DISPATCHER_CARD_FAILED,   /* `uuid` ("": all cards), `text`: by what */
    DISPATCHER_REQUEST,       /* `ask`; what it points to is in the arena */
    DISPATCHER_CANCEL,        /* `token` */
    DISPATCHER_STREAM_OPENED, /* `resource`, `token`: the kubelet listens */
    DISPATCHER_PODRESOURCES,  /* `view`; what it points to is in the arena */
    DISPATCHER_REGISTERED,    /* `resource`, `flag`: accepted, or `err` says why not */
    DISPATCHER_NODE,          /* `flag`: its label switches isolation off */
};

/* Made by dispatcher_tell_new, filled, and handed over with dispatcher_post. */
struct dispatcher_msg {
    enum dispatcher_msg_kind kind;
    struct arena arena;
    struct pod_allocation *pod;
    const char *text;
    const char *uuid;
    struct card_seen *seen;
    size_t n;
    bool flag;
    enum ids_resource resource;
    uint64_t token;
    struct alloc_request ask;
    struct alloc_kubelet_view view;
    struct err err;
    struct dispatcher_msg *next;
};

/* What it sends others to do; none of these may block. Strings are borrowed. */
struct dispatcher_callbacks {
    void (*query_pods)(void *ctx, uint64_t query, const char *ns, const char *name);
    void (*register_resource)(void *ctx, enum ids_resource r, const char *endpoint);
    void (*patch)(void *ctx, const struct alloc_output *o);
    void (*event)(void *ctx, const struct alloc_output *o);
    void (*relist)(void *ctx);
    void *ctx;
};

struct dispatcher_settings {
    struct alloc_settings alloc;
    const char *dir;   /* of the kubelet's and our sockets; borrowed */
    const char *state; /* file; borrowed */
    struct dispatcher_callbacks fns;
};

struct dispatcher;

/* New; reads the state file. The thread runs from dispatcher_start on. */
struct dispatcher *dispatcher_new(const struct dispatcher_settings *settings,
                                  struct err *err);
void dispatcher_start(struct dispatcher *b);
struct dispatcher_msg *dispatcher_msg_new(enum dispatcher_msg_kind kind);
/* Takes the message over. From any thread; never blocks. */
void dispatcher_post(struct dispatcher *b, struct dispatcher_msg *m);
/* Stops serving, waits for answers under way, and joins the thread. */
void dispatcher_stop(struct dispatcher *b);
void dispatcher_free(struct dispatcher *b); /* NULL is accepted */

/* Figures for /metrics and health, as of a moment ago. */
struct dispatcher_stats {
    struct alloc_stats alloc;
    size_t allocations, cards, healthy, units;
    bool listed;
    bool up[IDS_RESOURCES], wanted[IDS_RESOURCES];
    uint64_t registered[IDS_RESOURCES], lost[IDS_RESOURCES];
    struct dispatcher_call_stats {
        uint64_t n, sum_us, max_us; /* how long they took */
    } calls[ALLOC_REQUEST_TYPES];   /* that were answered */
    uint64_t save_failed;
    struct err cards_err;                     /* code ERR_NONE: they are well */
    struct err registered_err[IDS_RESOURCES]; /* why it is not; ERR_NONE: it is */
    struct failure podresources;
    int64_t alive_ms; /* clock_mono_ms when the thread came by last */
};
void dispatcher_stats(struct dispatcher *b, struct dispatcher_stats *stats);
