/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "plugin/dispatcher.h"
#include "plugin/endpoint.h"
#include "plugin/plugin_dir.h"
#include "plugin/registration.h"

/* The dispatcher in pieces: dispatcher.c (queue, thread), dispatcher_call_stats.c (the
 * kubelet's calls), dispatcher_do.c (what the allocator wants), dispatcher_door.c
 * (sockets, registrations, streams).
 */

/* A call of the kubelet that is not ended yet. */
struct pending_call {
    struct grpcd_call *call;
    uint64_t token;
    bool stream;
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
    struct err refused[IDS_RESOURCES]; /* why it was not registered the last time */
    bool fit_said;
    int64_t scanned_ms; /* at the directory, unasked */
    bool cards_known;
    int wake; /* eventfd */
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* protects what follows */
    struct dispatcher_msg *first, **end;
    struct pending_call *pending;
    size_t n_pending, cap_pending;
    uint64_t tokens;
    struct dispatcher_stats stats;
    bool stop;
};

struct alloc_time dispatcher_now(void);

/* dispatcher_call_stats.c. From any thread. */
struct endpoint_handlers
dispatcher_calls_handlers(struct dispatcher *d); /* each call is pending and told of */
/* Takes the call of the token, to end it. NULL: it was ended. */
struct grpcd_call *dispatcher_calls_take(struct dispatcher *d, uint64_t token);

/* dispatcher_do.c */
void dispatcher_output_run(struct dispatcher *d);
void dispatcher_output_load(struct dispatcher *d);

/* dispatcher_door.c */
void dispatcher_registration_open(struct dispatcher *d);
void dispatcher_registration_step(struct dispatcher *d); /* whatever is due */
void dispatcher_registration_scan(struct dispatcher *d); /* at the directory */
int64_t dispatcher_registration_due(const struct dispatcher *d);
void dispatcher_registration_cards_changed(
    struct dispatcher *d); /* what is listed has changed */
void dispatcher_registration_stream_opened(struct dispatcher *d, enum ids_resource r,
                                           uint64_t token);
/* Was it a stream? Then it is ended. */
bool dispatcher_registration_stream_closed(struct dispatcher *d, uint64_t token);
/* Is it registered, and if not, why? */
int dispatcher_registration_check(const struct dispatcher *d, enum ids_resource r,
                                  struct err *err);
void dispatcher_registration_close(struct dispatcher *d);
