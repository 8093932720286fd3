/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "plugin/brain.h"
#include "plugin/dir.h"
#include "plugin/endpoint.h"
#include "plugin/enroll.h"

/* The brain in pieces: brain.c (queue, thread), brain_calls.c (the kubelet's calls),
 * brain_do.c (what the allocator wants), brain_door.c (sockets, registrations, streams).
 */

/* A call of the kubelet that is not ended yet. */
struct kept {
    struct grpcd_call *call;
    uint64_t token;
    bool stream;
    enum alloc_ask_type type;
    enum ids_resource resource;
    int64_t began_us;
};

struct brain {
    struct brain_settings settings;
    char *node;
    struct alloc *alloc;
    struct alloc_outputs out;
    struct dir *dir;
    struct endpoint *endpoints[IDS_RESOURCES];
    struct enroll enroll[IDS_RESOURCES];
    struct err refused[IDS_RESOURCES]; /* why it was not registered the last time */
    bool fit_said;
    int64_t looked_ms; /* at the directory, unasked */
    bool cards_known;
    int wake; /* eventfd */
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* protects what follows */
    struct brain_msg *first, **end;
    struct kept *kept;
    size_t n_kept, cap_kept;
    uint64_t tokens;
    struct brain_stats stats;
    bool stop;
};

struct alloc_time brain_now(void);

/* brain_calls.c. From any thread. */
struct endpoint_fns calls_fns(struct brain *b); /* each call is kept and told of */
/* Takes the call of the token, to end it. NULL: it was ended. */
struct grpcd_call *calls_take(struct brain *b, uint64_t token);

/* brain_do.c */
void do_outputs(struct brain *b);
void do_load(struct brain *b);

/* brain_door.c */
void door_open(struct brain *b);
void door_step(struct brain *b); /* whatever is due */
void door_look(struct brain *b); /* at the directory */
int64_t door_due(const struct brain *b);
void door_cards(struct brain *b); /* what is listed has changed */
void door_stream(struct brain *b, enum ids_resource r, uint64_t token);
/* Was it a stream? Then it is ended. */
bool door_stream_over(struct brain *b, uint64_t token);
/* Is it registered, and if not, why? */
int door_check(const struct brain *b, enum ids_resource r, struct err *err);
void door_close(struct brain *b);
