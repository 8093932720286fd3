/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "plugin/dispatcher.h"
#include "plugin/endpoint.h"
#include "plugin/plugin_dir.h"
#include "plugin/registration.h"

/*
 * The dispatcher's parts:
 *
 *   dispatcher.c               queue and thread
 *   dispatcher_calls.c         the kubelet's open calls
 *   dispatcher_output.c        the allocator's outputs, the state file
 *   dispatcher_registration.c  sockets, registrations, ListAndWatch streams
 */

/* A call of the kubelet that is still open. */
struct pending_call {
    struct grpcd_call *call;
    uint64_t token;
    bool stream; /* ListAndWatch */
    enum alloc_request_type type;
    enum ids_resource resource;
    int64_t began_us;
};

struct dispatcher {
    struct dispatcher_settings settings;
    char *node;
    struct alloc *alloc;
    struct alloc_outputs out;
    struct plugin_dir *dir;
    struct endpoint *endpoints[IDS_RESOURCES];
    struct registration registration[IDS_RESOURCES];
    struct err register_err[IDS_RESOURCES]; /* of the last attempt; ERR_NONE: none */
    bool size_reported;
    int64_t scanned_ms;    /* when the directory was scanned last */
    int64_t limits_due_ms; /* when the files of the limits are checked next */
    int wake;              /* eventfd */
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* protects the members below */
    struct dispatcher_msg *first, **end;
    struct pending_call *pending;
    size_t n_pending, cap_pending;
    uint64_t tokens;
    struct dispatcher_stats stats;
    bool stop;
};

struct alloc_time dispatcher_now(void);

/* dispatcher_calls.c; from any thread. */
/* Handlers that add each call to `pending` and post a message. */
struct endpoint_handlers dispatcher_calls_handlers(struct dispatcher *d);
/* Removes the call from `pending`; the caller ends it. NULL: it was ended already. */
struct grpcd_call *dispatcher_calls_take(struct dispatcher *d, uint64_t token);

/* dispatcher_output.c */
void dispatcher_output_run(struct dispatcher *d); /* carries out and empties d->out */
void dispatcher_output_check_limits(struct dispatcher *d, int64_t now_ms);
void dispatcher_output_load(struct dispatcher *d); /* adds the state file's content */

/* dispatcher_registration.c */
void dispatcher_registration_open(struct dispatcher *d);
void dispatcher_registration_step(struct dispatcher *d); /* does what is due */
void dispatcher_registration_scan(struct dispatcher *d); /* looks for socket changes */
int64_t dispatcher_registration_due(const struct dispatcher *d);
/* Sends the new device list to the open streams. */
void dispatcher_registration_cards_changed(struct dispatcher *d);
void dispatcher_registration_stream_opened(struct dispatcher *d, enum ids_resource r,
                                           uint64_t token);
/* Ends the stream. False: the token is not that of a stream. */
bool dispatcher_registration_stream_closed(struct dispatcher *d, uint64_t token);
/* -1 with the reason if the resource is not registered. */
int dispatcher_registration_check(const struct dispatcher *d, enum ids_resource r,
                                  struct err *err);
void dispatcher_registration_close(struct dispatcher *d);
