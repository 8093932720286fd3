/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "plugin/dispatcher_priv.h"

/* Returns the call's token. `type` does not matter for a stream. */
static uint64_t add_pending(struct dispatcher *d, struct grpcd_call *call,
                            enum alloc_request_type type)
{
    pthread_mutex_lock(&d->lock);
    MEM_GROW(d->pending, d->cap_pending, d->n_pending + 1);
    uint64_t token = ++d->tokens;
    d->pending[d->n_pending++] = (struct pending_call){
        .call = call, .token = token, .type = type, .began_us = clock_mono_us()};
    pthread_mutex_unlock(&d->lock);
    return token;
}

static void on_stream_opened(void *ctx, enum ids_resource r, struct grpcd_call *call)
{
    struct dispatcher *d = ctx;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_STREAM_OPENED);
    m->resource = r;
    m->token = add_pending(d, call, ALLOC_REQUEST_TYPES);
    dispatcher_post(d, m);
}

static void on_request(void *ctx, struct grpcd_call *call,
                       const struct alloc_request *req, struct arena *arena)
{
    struct dispatcher *d = ctx;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_REQUEST);
    m->arena = *arena;
    m->request = *req;
    m->request.token = m->token = add_pending(d, call, req->type);
    dispatcher_post(d, m);
}

static void on_call_closed(void *ctx, struct grpcd_call *call)
{
    struct dispatcher *d = ctx;
    uint64_t token = 0;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending; i++)
        if (d->pending[i].call == call)
            token = d->pending[i].token;
    pthread_mutex_unlock(&d->lock);
    if (!token)
        return;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_CANCEL);
    m->token = token;
    dispatcher_post(d, m);
}

struct endpoint_handlers dispatcher_calls_handlers(struct dispatcher *d)
{
    return (struct endpoint_handlers){on_stream_opened, on_request, on_call_closed, d};
}

struct grpcd_call *dispatcher_calls_take(struct dispatcher *d, uint64_t token)
{
    struct grpcd_call *call = NULL;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending && !call; i++) {
        if (d->pending[i].token != token)
            continue;
        call = d->pending[i].call;
        int64_t us = clock_mono_us() - d->pending[i].began_us;
        if (!d->pending[i].stream && us >= 0) {
            struct dispatcher_call_stats *calls = &d->stats.calls[d->pending[i].type];
            calls->n++;
            calls->sum_us += (uint64_t)us;
            if ((uint64_t)us > calls->max_us)
                calls->max_us = (uint64_t)us;
        }
        d->pending[i] = d->pending[--d->n_pending];
    }
    pthread_mutex_unlock(&d->lock);
    return call;
}
