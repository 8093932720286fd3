/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/alloc.h"
#include "wire/grpcd.h"

/*
 * The device plugin gRPC server of one resource: decodes the kubelet's messages to
 * requests and encodes the answers. Calls for shares of compute (IDS_CORE) are answered
 * here.
 */

struct endpoint;

/* Called in the server's thread; must not block. The callee ends the call, at any time.
 */
struct endpoint_handlers {
    /* ListAndWatch: `call` is to be sent device lists. */
    void (*stream_opened)(void *ctx, enum ids_resource r, struct grpcd_call *call);
    /* GetPreferredAllocation or Allocate. `req` points into the arena;
     * the handler takes ownership of the arena. The token of `req` is not set. */
    void (*request)(void *ctx, struct grpcd_call *call, const struct alloc_request *req,
                    struct arena *arena);
    /* The kubelet has closed or canceled the call, which can be ended already. */
    void (*call_closed)(void *ctx, struct grpcd_call *call);
    void *ctx;
};

/* New; serves immediately. `handlers` is copied. */
struct endpoint *endpoint_start(const char *socket, enum ids_resource r,
                                const struct endpoint_handlers *handlers,
                                struct err *err);
/* Does the socket's path lead to this server? */
bool endpoint_is_reachable(const struct endpoint *e);
/* Removes the socket, ends the streams, waits briefly for answers in flight. */
void endpoint_stop(struct endpoint *e);
void endpoint_free(struct endpoint *e); /* NULL is accepted */

/* Encoded answers, appended to `out`: ListAndWatch, GetPreferredAllocation, Allocate. */
int endpoint_list(const struct cards *cards, enum ids_resource r, struct buf *out,
                  struct err *err);
int endpoint_preferred(const char *const *ids, size_t n, struct buf *out,
                       struct err *err);
int endpoint_allocated(const struct response *response, struct buf *out, struct err *err);
