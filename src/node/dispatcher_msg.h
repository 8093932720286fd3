/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "node/alloc.h"
#include "wire/grpcd.h"

/* The messages of other threads to the dispatcher's thread, and their queue. */

enum dispatcher_msg_kind {
    DISPATCHER_INPUT, /* `in`: for the allocator; a request of the kubelet has a `call` */
    DISPATCHER_STREAM_OPENED, /* `call`, of ListAndWatch, for `resource` */
    DISPATCHER_CALL_CLOSED,   /* the kubelet closed a call; `in` cancels the request */
    DISPATCHER_REGISTERED, /* the kubelet answered for `resource`; `err`: rejected, or none */
    DISPATCHER_STOP,
};

/* Created by dispatcher_msg_new, filled in, and posted. */
struct dispatcher_msg {
    enum dispatcher_msg_kind kind;
    struct alloc_input in;
    struct arena arena; /* of what `in` points to */
    enum ids_resource resource;
    struct grpcd_call *call; /* owned; in.request.token identifies it */
    struct err err;
    struct list link;
};

struct dispatcher_msg *dispatcher_msg_new(enum dispatcher_msg_kind kind); /* new */
struct dispatcher_msg *dispatcher_msg_input(enum alloc_input_type type);  /* new */
/* Ends its call, too. */
void dispatcher_msg_free(struct dispatcher_msg *m);
void dispatcher_msg_free_all(struct list *msgs);

struct dispatcher_msg_queue {
    pthread_mutex_t lock; /* protects `msgs` */
    pthread_cond_t cond;
    struct list msgs;
};

void dispatcher_msg_queue_init(struct dispatcher_msg_queue *q);
void dispatcher_msg_queue_fini(struct dispatcher_msg_queue *q); /* frees the messages */
/* Takes the message. From any thread; never blocks. */
void dispatcher_msg_post(struct dispatcher_msg_queue *q, struct dispatcher_msg *m);
/* A container of the pod runs without its limit: one Event is written for the pod. From any
 * thread. */
void dispatcher_msg_unlimited(struct dispatcher_msg_queue *q, const char *uid,
                              const char *why);
/* The next message, for the caller to free; NULL: `until_ms` (clock_mono_ms) has come. */
struct dispatcher_msg *dispatcher_msg_next(struct dispatcher_msg_queue *q,
                                           int64_t until_ms);
