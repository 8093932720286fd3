/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/api_workers.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "extender/event_pod.h"

struct api_workers {
    struct kube_client *client;
    struct counters *counters;
    struct core_driver *driver;
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
    struct api_workers *workers = ctx;
    struct kube_request request;
    struct httpc_reply reply;
    struct err err = {0};
    apisync_call(call, arena, &request);
    int rc = kube_call(workers->client, &request, &reply, &err);
    struct apisync_result result = {.status = rc ? 0 : reply.status,
                                    .body = arena_copy(arena, buf_span(&reply.body)),
                                    .why = &err,
                                    .sent = reply.sent,
                                    .retry_after_s = rc ? 0 : reply.retry_after_s};
    httpc_reply_fini(&reply);
    apisync_answer(call, &result, arena, answer);
    counters_api_call(workers->counters, kind_of(call->type),
                      answer->input.err ? answer->input.err->code : ERR_NONE);
}

/* A worker's job. */
static void perform_deferred(void *ctx, void *call)
{
    struct api_workers *workers = ctx;
    cleanup_arena struct arena arena = {0};
    struct apisync_answer answer;
    perform(workers, call, &arena, &answer);
    const struct core_output *made = call;
    bool preempts = made->type == CORE_CALL_NOMINATE || made->type == CORE_CALL_EVICT;
    if (preempts && !answer.input.err)
        event_pod_preemption(workers->recorder, made);
    core_driver_input(workers->driver, &answer.input);
}

static struct worker *worker_for(const struct api_workers *workers,
                                 enum core_output_type type)
{
    switch (type) {
    case CORE_CALL_LEASE_GET:
    case CORE_CALL_LEASE_WRITE:
        return workers->leases;
    case CORE_CALL_WAKEUP:
    case CORE_CALL_NOMINATE:
    case CORE_CALL_EVICT: /* may take seconds: not before the GETs of binds */
        return workers->nodes;
    default:
        return workers->pods;
    }
}

static void defer(void *ctx, const struct core_output *call)
{
    struct api_workers *workers = ctx;
    worker_add(worker_for(workers, call->type), core_output_dup(call));
}

static void stream(void *ctx, const struct core_output *output)
{
    struct api_workers *workers = ctx;
    apisync_streams_start(workers->watches, output);
}

static void on_input(void *ctx, const struct core_input *in)
{
    struct api_workers *workers = ctx;
    if (in->type == CORE_LIST_ENDED || in->type == CORE_LIST_FAILED ||
        in->type == CORE_WATCH_ENDED)
        counters_api_call(workers->counters,
                          in->type == CORE_WATCH_ENDED ? COUNTERS_API_WATCH
                                                       : COUNTERS_API_LIST,
                          in->err ? in->err->code : ERR_NONE);
    core_driver_input(workers->driver, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("reflector", "invalid object", LOG_ERR(err));
}

static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};

static void hurry(void *ctx)
{
    struct api_workers *workers = ctx;
    ticker_wake(workers->timer);
}

static void tick(void *ctx)
{
    struct api_workers *workers = ctx;
    core_driver_input(workers->driver, &(struct core_input){.type = CORE_TICK});
    forward_trim(workers->forward);
}

static int64_t due(void *ctx)
{
    struct api_workers *workers = ctx;
    return core_driver_due(workers->driver);
}

struct api_workers *api_workers_new(struct kube_client *client, struct counters *counters)
{
    struct api_workers *workers = xcalloc(1, sizeof *workers);
    workers->client = client;
    workers->counters = counters;
    workers->timer = ticker_new();
    return workers;
}

struct core_driver_io api_workers_io(struct api_workers *workers)
{
    return (struct core_driver_io){stream, defer, perform, hurry, workers};
}

void api_workers_start(struct api_workers *workers, struct core_driver *driver,
                       struct event_recorder *recorder, bool gzip)
{
    workers->driver = driver;
    workers->recorder = recorder;
    workers->leases = worker_start("lease", perform_deferred, workers);
    workers->pods = worker_start("checks", perform_deferred, workers);
    workers->nodes = worker_start("wakeups", perform_deferred, workers);
    workers->streams =
        (struct apisync_streams){.sink = &sink, .ctx = workers, .gzip = gzip};
    workers->watches = list_watch_loop_new(workers->client, CORE_KINDS,
                                           &apisync_streams_fns, &workers->streams);
    list_watch_loop_thread(workers->watches, "watch");
}

void api_workers_start_timer(struct api_workers *workers, struct forward *forward)
{
    static const struct ticker_fns fns = {tick, due};
    workers->forward = forward;
    ticker_start(workers->timer, &fns, workers);
}

int api_workers_post_event(void *ctx, const struct kube_request *request, struct err *err)
{
    struct api_workers *workers = ctx;
    int rc = kube_send(workers->client, request, err);
    counters_api_call(workers->counters, COUNTERS_API_EVENT, rc ? err->code : ERR_NONE);
    return rc;
}

void api_workers_stop(struct api_workers *workers)
{
    if (!workers)
        return;
    ticker_stop(workers->timer);
    list_watch_loop_stop(workers->watches);
    worker_stop(workers->leases);
    worker_stop(workers->pods);
    worker_stop(workers->nodes);
}

void api_workers_free(struct api_workers *workers)
{
    if (!workers)
        return;
    worker_free(workers->leases);
    worker_free(workers->pods);
    worker_free(workers->nodes);
    list_watch_loop_free(workers->watches);
    apisync_streams_fini(&workers->streams);
    ticker_free(workers->timer);
    free(workers);
}
