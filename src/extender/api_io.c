/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/api_io.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "extender/event_pod.h"

struct api_io {
    struct kube_client *client;
    struct counters *counters;
    struct store *store;
    struct forward *forward;
    struct event_recorder *recorder; /* or NULL */
    struct apisync_streams streams;
    struct list_watch_loop *watches;
    struct worker *leases, *pods, *nodes;
    struct ticker *timer;
};

static enum counters_api_call kind_of(enum core_output_type type)
{
    switch (type) {
    case CORE_CALL_BIND:
        return COUNTERS_API_BIND;
    case CORE_CALL_GET_POD:
        return COUNTERS_API_GET_POD;
    case CORE_CALL_LEASE_GET:
        return COUNTERS_API_LEASE_GET;
    case CORE_CALL_LEASE_WRITE:
        return COUNTERS_API_LEASE_WRITE;
    case CORE_CALL_NOMINATE:
        return COUNTERS_API_NOMINATE;
    case CORE_CALL_EVICT:
        return COUNTERS_API_EVICT;
    default:
        return COUNTERS_API_WAKEUP;
    }
}

static void perform(void *ctx, const struct core_output *call, struct arena *arena,
                    struct apisync_answer *answer)
{
    struct api_io *io = ctx;
    struct kube_request request;
    struct httpc_reply reply;
    struct err err = {0};
    apisync_call(call, arena, &request);
    int rc = kube_call(io->client, &request, &reply, &err);
    struct apisync_result result = {.status = rc ? 0 : reply.status,
                                     .body = arena_copy(arena, buf_span(&reply.body)),
                                     .why = &err,
                                     .sent = reply.sent,
                                     .retry_after_s = rc ? 0 : reply.retry_after_s};
    httpc_reply_fini(&reply);
    apisync_answer(call, &result, arena, answer);
    counters_api_call(io->counters, kind_of(call->type),
                      answer->input.err ? answer->input.err->code : ERR_NONE);
}

/* A worker's job. */
static void perform_deferred(void *ctx, void *call)
{
    struct api_io *io = ctx;
    cleanup_arena struct arena arena = {0};
    struct apisync_answer answer;
    perform(io, call, &arena, &answer);
    const struct core_output *made = call;
    bool preempts = made->type == CORE_CALL_NOMINATE || made->type == CORE_CALL_EVICT;
    if (preempts && !answer.input.err)
        event_pod_preemption(io->recorder, made);
    store_input(io->store, &answer.input);
}

static struct worker *worker_for(const struct api_io *io, enum core_output_type type)
{
    switch (type) {
    case CORE_CALL_LEASE_GET:
    case CORE_CALL_LEASE_WRITE:
        return io->leases;
    case CORE_CALL_WAKEUP:
    case CORE_CALL_NOMINATE:
    case CORE_CALL_EVICT: /* may take seconds: not before the GETs of binds */
        return io->nodes;
    default:
        return io->pods;
    }
}

static void defer(void *ctx, const struct core_output *call)
{
    struct api_io *io = ctx;
    worker_add(worker_for(io, call->type), core_output_dup(call));
}

static void stream(void *ctx, const struct core_output *output)
{
    struct api_io *io = ctx;
    apisync_streams_start(io->watches, output);
}

static void on_input(void *ctx, const struct core_input *in)
{
    struct api_io *io = ctx;
    if (in->type == CORE_LIST_ENDED || in->type == CORE_LIST_FAILED ||
        in->type == CORE_WATCH_ENDED)
        counters_api_call(io->counters,
                          in->type == CORE_WATCH_ENDED ? COUNTERS_API_WATCH
                                                       : COUNTERS_API_LIST,
                          in->err ? in->err->code : ERR_NONE);
    store_input(io->store, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("reflector", "invalid object", LOG_ERR(err));
}

static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};

static void hurry(void *ctx)
{
    struct api_io *io = ctx;
    ticker_wake(io->timer);
}

static void tick(void *ctx)
{
    struct api_io *io = ctx;
    store_input(io->store, &(struct core_input){.type = CORE_TICK});
    forward_trim(io->forward);
}

static int64_t due(void *ctx)
{
    struct api_io *io = ctx;
    return store_due(io->store);
}

struct api_io *api_io_new(struct kube_client *client, struct counters *counters)
{
    struct api_io *io = xcalloc(1, sizeof *io);
    io->client = client;
    io->counters = counters;
    io->timer = ticker_new();
    return io;
}

struct store_io api_io_functions(struct api_io *io)
{
    return (struct store_io){stream, defer, perform, hurry, io};
}

void api_io_start(struct api_io *io, struct store *store, struct event_recorder *recorder,
                  bool gzip)
{
    io->store = store;
    io->recorder = recorder;
    io->leases = worker_start("lease", perform_deferred, io);
    io->pods = worker_start("checks", perform_deferred, io);
    io->nodes = worker_start("wakeups", perform_deferred, io);
    io->streams = (struct apisync_streams){.sink = &sink, .ctx = io, .gzip = gzip};
    io->watches = list_watch_loop_new(io->client, CORE_KINDS, &apisync_streams_fns,
                                      &io->streams);
    list_watch_loop_thread(io->watches, "watch");
}

void api_io_start_timer(struct api_io *io, struct forward *forward)
{
    static const struct ticker_fns fns = {tick, due};
    io->forward = forward;
    ticker_start(io->timer, &fns, io);
}

int api_io_post_event(void *ctx, const struct kube_request *request, struct err *err)
{
    struct api_io *io = ctx;
    int rc = kube_send(io->client, request, err);
    counters_api_call(io->counters, COUNTERS_API_EVENT, rc ? err->code : ERR_NONE);
    return rc;
}

void api_io_stop(struct api_io *io)
{
    if (!io)
        return;
    ticker_stop(io->timer);
    list_watch_loop_stop(io->watches);
    worker_stop(io->leases);
    worker_stop(io->pods);
    worker_stop(io->nodes);
}

void api_io_free(struct api_io *io)
{
    if (!io)
        return;
    worker_free(io->leases);
    worker_free(io->pods);
    worker_free(io->nodes);
    list_watch_loop_free(io->watches);
    apisync_streams_fini(&io->streams);
    ticker_free(io->timer);
    free(io);
}
