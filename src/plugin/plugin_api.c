/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/plugin_api_priv.h"

enum { NODE_RETRY_MS = 2000 }; /* shorter than an Allocate waits for the first read */

void plugin_api_count(struct plugin_api *api, uint64_t *counter)
{
    pthread_mutex_lock(&api->lock);
    ++*counter;
    pthread_mutex_unlock(&api->lock);
}

void plugin_api_set_failure(struct plugin_api *api, struct failure *f,
                            const struct err *why)
{
    pthread_mutex_lock(&api->lock);
    if (why && why->code != ERR_NONE)
        failure_record(f, clock_mono_ms(), why);
    else
        failure_clear(f);
    pthread_mutex_unlock(&api->lock);
}

static void on_seen(void *ctx, struct pod_allocation *pod)
{
    struct plugin_api *api = ctx;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_POD);
    m->pod = pod;
    dispatcher_post(api->dispatcher, m);
}

static void on_deleted(void *ctx, struct span uid)
{
    struct plugin_api *api = ctx;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_POD_DELETED);
    m->text = arena_copy(&m->arena, uid).p;
    dispatcher_post(api->dispatcher, m);
}

static void on_list(void *ctx, bool ended)
{
    struct plugin_api *api = ctx;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_LIST);
    m->flag = ended;
    dispatcher_post(api->dispatcher, m);
}

static void on_invalid(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("api", "ignoring the spec of an invalid pod", LOG_ERR(err));
}

static const struct pod_reflector_sink pod_sink = {on_seen, on_deleted, on_list,
                                                   on_invalid};

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct plugin_api *api = ctx;
    if (status == 401)
        kube_client_unauthorized(api->client);
    if (status == 200 && api->reflector.watching)
        plugin_api_set_failure(api, &api->stats.watch, NULL);
    return pod_reflector_begin(&api->reflector, status, retry_after_s);
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct plugin_api *api = ctx;
    return pod_reflector_data(&api->reflector, p, n);
}

static void on_end(void *ctx, const struct err *why)
{
    struct plugin_api *api = ctx;
    struct err err;
    api->stream = NULL;
    api->due_ms = clock_mono_ms() + pod_reflector_end(&api->reflector, why, &err);
    plugin_api_set_failure(api, &api->stats.watch, &err);
    if (err.code == ERR_NONE)
        return;
    plugin_api_count(api, &api->stats.watch_failures);
    log_warn("api", "pod watch failed; retrying", LOG_ERR(&err));
}

static const struct httpc_sink http_sink = {on_begin, on_data, on_end};

static void begin(struct plugin_api *api)
{
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    pod_reflector_request(&api->reflector, &a, &request);
    api->stream =
        kube_stream_start(api->client, api->loop, &request, &http_sink, api, &err);
    if (!api->stream)
        on_end(api, &err); /* no credentials: handled like a lost connection */
}

void plugin_api_relist(struct plugin_api *api)
{
    pthread_mutex_lock(&api->lock);
    api->relist = true;
    pthread_mutex_unlock(&api->lock);
    httpc_loop_wake(api->loop);
}

/* Handles requests of other threads. True: the thread shall stop. */
static bool is_stopped(struct plugin_api *api)
{
    pthread_mutex_lock(&api->lock);
    bool stop = api->stop, relist = api->relist;
    api->relist = false;
    api->stats.alive_ms = clock_mono_ms();
    pthread_mutex_unlock(&api->lock);
    if (relist && api->reflector.watching) {
        if (api->stream)
            httpc_stream_cancel(api->stream);
        api->stream = NULL;
        pod_reflector_relist(&api->reflector);
        api->due_ms = 0;
    }
    return stop;
}

static void *run(void *arg)
{
    struct plugin_api *api = arg;
    while (!is_stopped(api)) {
        int64_t now = clock_mono_ms();
        if (!api->stream && now >= api->due_ms)
            begin(api);
        if (atomic_exchange(&api->node_failed, false) &&
            api->node_due_ms > now + NODE_RETRY_MS)
            api->node_due_ms = now + NODE_RETRY_MS;
        if (now >= api->node_due_ms) {
            plugin_api_read_node(api);
            api->node_due_ms = now + api->settings.node_ms;
        }
        int64_t wait = api->stream ? 1000 : api->due_ms - now;
        httpc_loop_run(api->loop, wait < 0 ? 0 : wait < 1000 ? wait : 1000);
    }
    if (api->stream)
        httpc_stream_cancel(api->stream);
    return NULL;
}

struct plugin_api *plugin_api_start(struct kube_client *client,
                                    const struct plugin_api_settings *settings,
                                    struct dispatcher *dispatcher)
{
    struct plugin_api *api = xcalloc(1, sizeof *api);
    api->client = client;
    api->settings = *settings;
    api->dispatcher = dispatcher;
    api->stats.alive_ms = clock_mono_ms();
    pthread_mutex_init(&api->lock, NULL);
    pod_reflector_init(&api->reflector, settings->node, settings->unit_mib, &pod_sink,
                       api);
    api->loop = httpc_loop_new();
    api->patches = worker_start("patches", plugin_api_on_job, api);
    api->events = worker_start("events", plugin_api_on_job, api);
    if (pthread_create(&api->thread, NULL, run, api))
        abort();
    pthread_setname_np(api->thread, "pods");
    return api;
}

bool plugin_api_stop(struct plugin_api *api, int64_t until_ms)
{
    if (!api)
        return true;
    pthread_mutex_lock(&api->lock);
    api->stop = true;
    pthread_mutex_unlock(&api->lock);
    httpc_loop_wake(api->loop);
    pthread_join(api->thread, NULL);
    return worker_stop_until(api->patches, until_ms) &&
           worker_stop_until(api->events, until_ms);
}

void plugin_api_free(struct plugin_api *api)
{
    if (!api)
        return;
    worker_free(api->patches);
    worker_free(api->events);
    httpc_loop_free(api->loop);
    pod_reflector_fini(&api->reflector);
    pthread_mutex_destroy(&api->lock);
    free(api);
}

void plugin_api_stats(struct plugin_api *api, struct plugin_api_stats *stats)
{
    pthread_mutex_lock(&api->lock);
    *stats = api->stats;
    pthread_mutex_unlock(&api->lock);
}
