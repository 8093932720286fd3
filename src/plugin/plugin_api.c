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
#include "domain/fields.h"
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
    struct list_watch_loop *loop;
    atomic_bool node_failed; /* read it again soon */

    /* used by the watch thread only */
    struct pod_reflector reflector;
    uint64_t runs;
    int64_t due_ms, node_due_ms;

    pthread_mutex_t lock; /* protects the members below */
    bool relist;
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

struct patch {
    char ns[64], name[256], uid[128]; /* as long as Kubernetes allows */
    char annotations[];
};

static struct patch *patch_new(const struct alloc_output *o)
{
    size_t n = strlen(o->annotations) + 1;
    struct patch *patch = xcalloc(1, sizeof *patch + n);
    snprintf(patch->ns, sizeof patch->ns, "%s", o->ns);
    snprintf(patch->name, sizeof patch->name, "%s", o->name);
    snprintf(patch->uid, sizeof patch->uid, "%s", o->uid);
    memcpy(patch->annotations, o->annotations, n);
    return patch;
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
static void patch_pod(void *ctx, void *arg)
{
    struct plugin_api *api = ctx;
    const struct patch *job = arg;
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

/* What a Node says of its programs, and the label cgpu.disable.isolation. */
struct node_facts {
    struct object_meta meta;
    struct span runtime, kubelet, disable;
};

static void read_meta(struct field_reader *r, const struct field *f, void *at)
{
    struct node_facts *facts = at;
    const struct object_field field = {OBJECT_LABEL, SPAN(KEY_CGPU_DISABLE),
                                       &facts->disable};
    (void)f;
    object_meta_read(r->j, r->a, &facts->meta, &field, 1);
}

#define INFO(key, member) FIELD("status.nodeInfo.", key, node_facts, member)

static const struct field info_fields[] = {{INFO("containerRuntimeVersion", runtime)},
                                           {INFO("kubeletVersion", kubelet)},
                                           FIELDS_END};
static const struct field status_fields[] = {
    {FIELD("status.", "nodeInfo", node_facts, meta), FIELD_IS_OBJECT(info_fields)},
    FIELDS_END};
static const struct field node_fields[] = {
    {FIELD("", "metadata", node_facts, meta), .type = FIELD_OTHER, .read = read_meta},
    {FIELD("", "status", node_facts, meta), FIELD_IS_OBJECT(status_fields)},
    FIELDS_END};

/* Returns whether the Node has cgpu.disable.isolation=true. */
static bool decode_node(struct span body, struct driver_node *node)
{
    cleanup_arena struct arena a = {0};
    struct node_facts facts = {0};
    struct jread j;
    jread_init(&j, body.p, body.n);
    fields_read(&(struct field_reader){.j = &j, .a = &a}, "node", node_fields, &facts);
    snprintf(node->runtime, sizeof node->runtime, "%.*s", SPAN_ARG(facts.runtime));
    snprintf(node->kubelet, sizeof node->kubelet, "%.*s", SPAN_ARG(facts.kubelet));
    return jread_finish(&j, NULL) == 0 && span_eq(facts.disable, SPAN("true"));
}

static void read_node(void *ctx, void *job)
{
    struct plugin_api *api = ctx;
    cleanup_buf struct buf path = {0}, body = {0};
    struct err err = {0};
    bool again;
    (void)job;
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

/* The watch */

static void on_input(void *ctx, const struct alloc_input *in)
{
    struct plugin_api *api = ctx;
    struct dispatcher_msg *m = dispatcher_input_new(in->type);
    m->in.pod = in->pod;
    m->in.uid = arena_copy(&m->arena, in->uid);
    dispatcher_post(api->dispatcher, m);
}

static void on_invalid(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("api", "ignoring the spec of an invalid pod", LOG_ERR(err));
}

static const struct pod_reflector_sink pod_sink = {on_input, on_invalid};

static void on_request(void *ctx, size_t slot, struct arena *a,
                       struct kube_request *request)
{
    struct plugin_api *api = ctx;
    (void)slot;
    pod_reflector_request(&api->reflector, a, request);
}

static void on_begin(void *ctx, size_t slot, unsigned status, int64_t retry_after_s)
{
    struct plugin_api *api = ctx;
    (void)slot;
    if (status == 200 && api->reflector.watching)
        set_failure(api, &api->stats.watch, NULL);
    list_watch_begin(&api->reflector.in, status, retry_after_s);
}

static bool on_data(void *ctx, size_t slot, const char *p, size_t n)
{
    struct plugin_api *api = ctx;
    (void)slot;
    return list_watch_data(&api->reflector.in, p, n);
}

static bool on_end(void *ctx, size_t slot, const struct err *why)
{
    struct plugin_api *api = ctx;
    struct err err;
    (void)slot;
    int64_t wait = pod_reflector_end(&api->reflector, why, &err);
    api->due_ms = clock_mono_ms() + wait;
    set_failure(api, &api->stats.watch, &err);
    if (err.code == ERR_NONE)
        return wait == 0; /* the next page, or the watch after a list */
    count(api, &api->stats.watch_failures);
    log_warn("api", "pod watch failed; retrying", LOG_ERR(&err));
    return false;
}

static int64_t on_tick(void *ctx)
{
    struct plugin_api *api = ctx;
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&api->lock);
    bool relist = api->relist;
    api->relist = false;
    api->stats.alive_ms = now;
    pthread_mutex_unlock(&api->lock);
    if (relist && api->reflector.watching) {
        list_watch_loop_cancel(api->loop, 0);
        pod_reflector_relist(&api->reflector);
        api->due_ms = now;
    }
    if (!list_watch_loop_is_active(api->loop, 0) && now >= api->due_ms)
        list_watch_loop_start(api->loop, 0, &(struct list_watch_run){.run = ++api->runs});
    if (atomic_exchange(&api->node_failed, false) &&
        api->node_due_ms > now + NODE_RETRY_MS)
        api->node_due_ms = now + NODE_RETRY_MS;
    if (now >= api->node_due_ms) {
        worker_add(api->reads, xcalloc(1, 1));
        api->node_due_ms = now + api->settings.node_ms;
    }
    return api->due_ms > now ? api->due_ms - now : 1000;
}

static const struct list_watch_fns watch_fns = {.request = on_request,
                                                .begin = on_begin,
                                                .data = on_data,
                                                .end = on_end,
                                                .tick = on_tick};

void plugin_api_carry_out(struct plugin_api *api, const struct alloc_output *o)
{
    if (o->type == ALLOC_PATCH) {
        worker_add(api->patches, patch_new(o));
        return;
    }
    if (o->type == ALLOC_EVENT) {
        const struct event event = {.kind = EVENT_POD,
                                    .ns = span_of(o->ns),
                                    .name = span_of(o->name),
                                    .uid = span_of(o->uid),
                                    .warning = true,
                                    .unique = true,
                                    .reason = o->reason,
                                    .action = "Allocating",
                                    .note = span_of(o->text)};
        if (!event_recorder_add(api->events, &event))
            log_warn("api", "event not written: too many events",
                     LOG_S("reason", o->reason), LOG_S("namespace", o->ns),
                     LOG_S("pod", o->name));
        return;
    }
    pthread_mutex_lock(&api->lock);
    api->relist = true;
    pthread_mutex_unlock(&api->lock);
    list_watch_loop_wake(api->loop);
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
    api->loop = list_watch_loop_new(client, 1, &watch_fns, api);
    api->patches = worker_start("patches", patch_pod, api);
    api->reads = worker_start("node", read_node, api);
    api->events = event_recorder_start(
        &(struct event_recorder_settings){.post = kube_send,
                                          .ctx = client,
                                          .controller = "gpushare-device-plugin",
                                          .instance = settings->node,
                                          .seed = rng_entropy()});
    list_watch_loop_thread(api->loop, "pods");
    return api;
}

bool plugin_api_stop(struct plugin_api *api, int64_t until_ms)
{
    if (!api)
        return true;
    list_watch_loop_stop(api->loop);
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
    list_watch_loop_free(api->loop);
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
