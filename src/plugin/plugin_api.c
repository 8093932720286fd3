/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The plugin's calls to the API server: the watch of its node's pods, patches, events and
 * reads of the Node.
 */

#include "plugin/plugin_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "domain/keys.h"
#include "kube/body.h"
#include "kube/event_recorder.h"
#include "plugin/pod_reflector.h"

enum {
    NODE_RETRY_MS = 2000, /* shorter than an Allocate waits for the first read */
    CALL_MS = 5000,
    PATCH_TRIES = 3, /* the allocator sends the patch again later */
    PATCH_RETRY_MS = 500,
};

struct plugin_api {
    struct kube_client *client;
    struct plugin_api_settings settings;
    struct dispatcher *dispatcher;
    struct worker *patches, *reads;
    struct event_recorder *events;
    struct httpc_loop *loop;
    struct pod_reflector reflector;
    pthread_t thread;
    int64_t node_due_ms;
    atomic_bool node_failed; /* read it again soon */

    /* used by the watch thread only */
    struct httpc_stream *stream;
    int64_t due_ms;

    pthread_mutex_t lock; /* protects the members below */
    bool stop, relist;
    struct plugin_api_stats stats;
};

/* Counts under the lock. */
static void count(struct plugin_api *api, uint64_t *counter)
{
    pthread_mutex_lock(&api->lock);
    ++*counter;
    pthread_mutex_unlock(&api->lock);
}

/* Records the failure, or clears it if `why` is NULL or of code ERR_NONE. */
static void set_failure(struct plugin_api *api, struct step_failure *f,
                        const struct err *why)
{
    pthread_mutex_lock(&api->lock);
    if (why && why->code != ERR_NONE)
        step_failed(f, clock_mono_ms(), why);
    else
        step_succeeded(f);
    pthread_mutex_unlock(&api->lock);
}

/* Jobs of the workers, which carry them out one at a time. */

enum job_kind { JOB_PATCH, JOB_NODE };
struct job {
    enum job_kind kind;
    char *ns, *name, *uid, *annotations; /* stored behind the struct */
};

static struct job *job_new(enum job_kind kind, const struct alloc_output *o)
{
    const char *from[] = {o->ns, o->name, o->uid, o->annotations};
    size_t n = 0, sizes[ARRAY_LEN(from)];
    for (size_t i = 0; i < ARRAY_LEN(from); i++)
        n += sizes[i] = from[i] ? strlen(from[i]) + 1 : 0;
    struct job *job = xcalloc(1, sizeof *job + n);
    char **to[] = {&job->ns, &job->name, &job->uid, &job->annotations};
    char *at = (char *)(job + 1);
    job->kind = kind;
    for (size_t i = 0; i < ARRAY_LEN(from); i++) {
        if (!from[i])
            continue;
        *to[i] = memcpy(at, from[i], sizes[i]);
        at += sizes[i];
    }
    return job;
}

/* *again: the error is temporary. */
static int call(struct plugin_api *api, const struct kube_request *request,
                struct buf *body, bool *again, struct err *err)
{
    struct httpc_reply reply;
    int rc = kube_call(api->client, request, &reply, err);
    if (rc == 0)
        rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
    if (rc == 0 && body)
        buf_add_span(body, buf_span(&reply.body));
    *again = rc && (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT ||
                    err->code == ERR_INTERNAL || err->code == ERR_UNAUTHORIZED);
    httpc_reply_fini(&reply);
    return rc;
}

/* The UID is a precondition: a recreated pod of the same name must not be patched. */
static void patch(struct plugin_api *api, const struct job *job)
{
    cleanup_buf struct buf body = {0}, path = {0};
    struct err err = {0};
    bool again = true;
    int rc = -1;
    body_annotations(&body, span_of(job->uid), job->annotations);
    buf_printf(&path, "/api/v1/namespaces/%s/pods/%s", job->ns, job->name);
    struct kube_request request = {.method = "PATCH",
                                   .path = path.p,
                                   .content_type = "application/merge-patch+json",
                                   .body = buf_span(&body),
                                   .timeout_ms = CALL_MS};
    for (int i = 0; i < PATCH_TRIES && rc && again; i++) {
        if (i)
            clock_sleep_ms(PATCH_RETRY_MS);
        rc = call(api, &request, NULL, &again, &err);
    }
    count(api, rc ? &api->stats.patch_failed : &api->stats.patched);
    if (rc && err.code == ERR_NOT_FOUND)
        log_debug("api", "pod was deleted before it was annotated",
                  LOG_S("pod", job->name));
    else if (rc)
        log_warn("api", "cannot annotate pod; retrying later",
                 LOG_S("namespace", job->ns), LOG_S("pod", job->name), LOG_ERR(&err));
}

static void copy(struct jread *j, struct arena *a, char *to, size_t n)
{
    struct span text;
    if (jread_text(j, "status.nodeInfo", a, &text))
        snprintf(to, n, "%.*s", SPAN_ARG(text));
}

/* The versions of the node's programs. */
static void read_node_info(struct jread *j, struct arena *a, struct driver_node *node)
{
    struct jread_str key;
    jread_object(j, "status.nodeInfo");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "containerRuntimeVersion"))
            copy(j, a, node->runtime, sizeof node->runtime);
        else if (jread_key_is(key, "kubeletVersion"))
            copy(j, a, node->kubelet, sizeof node->kubelet);
        else
            jread_skip(j);
    }
}

static void read_status(struct jread *j, struct arena *a, struct driver_node *node)
{
    struct jread_str key;
    jread_object(j, "status");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "nodeInfo"))
            read_node_info(j, a, node);
        else
            jread_skip(j);
    }
}

/* Returns whether the Node has cgpu.disable.isolation=true. */
static bool decode_node(struct span body, struct driver_node *node)
{
    cleanup_arena struct arena a = {0};
    struct span value = {0};
    const struct object_field field = {OBJECT_LABEL, SPAN(KEY_CGPU_DISABLE), &value};
    struct object_meta meta = {0};
    struct jread j;
    struct jread_str key;
    jread_init(&j, body.p, body.n);
    jread_object(&j, "node");
    while (jread_member(&j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(&j, &a, &meta, &field, 1);
        else if (jread_key_is(key, "status"))
            read_status(&j, &a, node);
        else
            jread_skip(&j);
    }
    return jread_finish(&j, NULL) == 0 && span_eq(value, SPAN("true"));
}

static void read_node(struct plugin_api *api)
{
    cleanup_buf struct buf path = {0}, body = {0};
    struct err err = {0};
    bool again;
    buf_printf(&path, "/api/v1/nodes/%s", api->settings.node);
    struct kube_request request = {
        .method = "GET", .path = path.p, .timeout_ms = CALL_MS};
    if (call(api, &request, &body, &again, &err)) {
        log_warn("api", "cannot read the Node; retrying",
                 LOG_S("node", api->settings.node), LOG_ERR(&err));
        set_failure(api, &api->stats.node, &err);
        atomic_store(&api->node_failed, true);
        return;
    }
    set_failure(api, &api->stats.node, NULL);
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_NODE);
    m->in.cgpu_disable = decode_node(buf_span(&body), &m->in.node);
    dispatcher_post(api->dispatcher, m);
}

static void on_job(void *ctx, void *job)
{
    const struct job *j = job;
    if (j->kind == JOB_PATCH)
        patch(ctx, j);
    else
        read_node(ctx);
}

/* The watch */

static void on_seen(void *ctx, struct pod_allocation *pod)
{
    struct plugin_api *api = ctx;
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_POD);
    m->in.pod = pod;
    dispatcher_post(api->dispatcher, m);
}

static void on_deleted(void *ctx, struct span uid)
{
    struct plugin_api *api = ctx;
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_POD_DELETED);
    m->in.uid = arena_copy(&m->arena, uid);
    dispatcher_post(api->dispatcher, m);
}

static void on_list(void *ctx, bool ended)
{
    struct plugin_api *api = ctx;
    struct dispatcher_msg *m = dispatcher_input_new(
        ended ? ALLOC_IN_LIST_ENDED : ALLOC_IN_LIST_STARTED);
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
        set_failure(api, &api->stats.watch, NULL);
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
    set_failure(api, &api->stats.watch, &err);
    if (err.code == ERR_NONE)
        return;
    count(api, &api->stats.watch_failures);
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

void plugin_api_carry_out(struct plugin_api *api, const struct alloc_output *o)
{
    if (o->type == ALLOC_PATCH) {
        worker_add(api->patches, job_new(JOB_PATCH, o));
        return;
    }
    if (o->type == ALLOC_EVENT) {
        event_recorder_add(api->events, &(struct event){.kind = EVENT_POD,
                                                        .ns = span_of(o->ns),
                                                        .name = span_of(o->name),
                                                        .uid = span_of(o->uid),
                                                        .warning = true,
                                                        .unique = true,
                                                        .reason = o->reason,
                                                        .action = "Allocating",
                                                        .note = span_of(o->text)});
        return;
    }
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
            worker_add(api->reads, job_new(JOB_NODE, &(struct alloc_output){0}));
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
    api->patches = worker_start("patches", on_job, api);
    api->reads = worker_start("node", on_job, api);
    api->events = event_recorder_start(
        &(struct event_recorder_settings){.post = kube_send,
                                          .ctx = client,
                                          .controller = "gpushare-device-plugin",
                                          .instance = settings->node,
                                          .seed = rng_entropy()});
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
           worker_stop_until(api->reads, until_ms) &&
           event_recorder_stop_until(api->events, until_ms);
}

void plugin_api_free(struct plugin_api *api)
{
    if (!api)
        return;
    worker_free(api->patches);
    worker_free(api->reads);
    event_recorder_free(api->events);
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
    struct event_recorder_stats events = event_recorder_stats(api->events);
    stats->events = events.written;
    stats->events_failed = events.failed;
}
