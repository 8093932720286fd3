/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/alloc.h"
#include "wire/grpcd.h"

/*
 * The server of one resource: from the kubelet's messages to what is asked, and from
 * answers to messages.
 */

struct endpoint;

/* What the kubelet wants. They are called in the server's thread and must not block; the
 * call is theirs to end, when they like. */
struct endpoint_handlers {
    /* It listens: it is to be sent lists. */
    void (*stream_opened)(void *ctx, enum ids_resource r, struct grpcd_call *call);
    /* It asks. What `ask` points to is in the arena, which is taken over; the token is
     * not set. */
    void (*request)(void *ctx, struct grpcd_call *call, const struct alloc_request *ask,
                    struct arena *arena);
    /* Nobody waits for the call any more; it may be over already. */
    void (*call_closed)(void *ctx, struct grpcd_call *call);
    void *ctx;
};

/* New; serves at once. `fns` is copied. */
struct endpoint *endpoint_start(const char *socket, enum ids_resource r,
                                const struct endpoint_handlers *fns, struct err *err);
bool endpoint_is_reachable(const struct endpoint *e);
/* Removes the socket, ends the streams, waits a little for answers under way. */
void endpoint_stop(struct endpoint *e);
void endpoint_free(struct endpoint *e); /* NULL is accepted */

/* Messages for the kubelet, appended to out. */
int endpoint_list(const struct cards *cards, enum ids_resource r, struct buf *out,
                  struct err *err);
int endpoint_preferred(const char *const *ids, size_t n, struct buf *out,
                       struct err *err);
int endpoint_allocated(const struct response *response, struct buf *out, struct err *err);
