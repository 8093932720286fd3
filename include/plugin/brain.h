/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/alloc.h"

/*
 * The one thread that decides: it owns the allocator and the registrations, takes what
 * all other threads tell it out of one queue, and carries out what comes of it in order.
 * No lock protects the machines, because nobody else touches them.
 */

enum brain_kind {
    BRAIN_POD,        /* `plan` */
    BRAIN_POD_GONE,   /* `text`: its uid */
    BRAIN_LIST,       /* `flag`: it has ended; else it begins */
    BRAIN_CARDS,      /* `seen` and `n`, or `text` says why there are none */
    BRAIN_STRUCK,     /* `uuid` ("": all cards), `text`: by what */
    BRAIN_ASK,        /* `ask`; what it points to is in the arena */
    BRAIN_CANCEL,     /* `token` */
    BRAIN_STREAM,     /* `resource`, `token`: the kubelet listens */
    BRAIN_SHOWN,      /* `shown`; what it points to is in the arena */
    BRAIN_REGISTERED, /* `resource`, `flag`: accepted, or `err` says why not */
    BRAIN_NODE,       /* `flag`: its label switches isolation off */
};

/* Made by brain_tell_new, filled, and handed over with brain_tell. */
struct brain_msg {
    enum brain_kind kind;
    struct arena arena;
    struct plan *plan;
    const char *text;
    const char *uuid;
    struct card_seen *seen;
    size_t n;
    bool flag;
    enum ids_resource resource;
    uint64_t token;
    struct alloc_ask ask;
    struct alloc_shown shown;
    struct err err;
    struct brain_msg *next;
};

/* What it sends others to do; none of these may block. Strings are borrowed. */
struct brain_fns {
    void (*look)(void *ctx, uint64_t query, const char *ns, const char *name);
    void (*enroll)(void *ctx, enum ids_resource r, const char *endpoint);
    void (*patch)(void *ctx, const struct alloc_output *o);
    void (*event)(void *ctx, const struct alloc_output *o);
    void (*news)(void *ctx);
    void *ctx;
};

struct brain_settings {
    struct alloc_settings alloc;
    const char *dir;   /* of the kubelet's and our sockets; borrowed */
    const char *state; /* file; borrowed */
    struct brain_fns fns;
};

struct brain;

/* New; reads the state file. The thread runs from brain_go on. */
struct brain *brain_new(const struct brain_settings *settings, struct err *err);
void brain_go(struct brain *b);
struct brain_msg *brain_msg_new(enum brain_kind kind);
/* Takes the message over. From any thread; never blocks. */
void brain_tell(struct brain *b, struct brain_msg *m);
/* Stops serving, waits for answers under way, and joins the thread. */
void brain_stop(struct brain *b);
void brain_free(struct brain *b); /* NULL is accepted */

/* Figures for /metrics and health, as of a moment ago. */
struct brain_stats {
    struct alloc_stats alloc;
    size_t grants, cards, healthy, units;
    bool listed;
    bool up[IDS_RESOURCES], wanted[IDS_RESOURCES];
    uint64_t registered[IDS_RESOURCES], lost[IDS_RESOURCES];
    struct brain_calls {
        uint64_t n, sum_us, max_us; /* how long they took */
    } calls[ALLOC_ASKS];            /* that were answered */
    uint64_t save_failed;
    struct err cards_err;                     /* code ERR_NONE: they are well */
    struct err registered_err[IDS_RESOURCES]; /* why it is not; ERR_NONE: it is */
    struct trouble podresources;
    int64_t alive_ms; /* clock_mono_ms when the thread came by last */
};
void brain_stats(struct brain *b, struct brain_stats *stats);
