/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The plugin's calls to the kubelet: podresources and Register; and to the API server: the
 * watch of its node's pods, patches, events and reads of the Node.
 */

#include "plugin/calls.h"

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
#include "kube/deviceplugin.h"
#include "kube/event_recorder.h"
#include "kube/podresources.h"
#include "plugin/pod_reflector.h"
#include "wire/grpcc.h"

enum {
    /* The kubelet connects back, for at most 10 s, before it answers. */
    REGISTER_MS = 15 * 1000,
    NODE_RETRY_MS = 2000, /* shorter than an Allocate waits for the first read */
    CALL_MS = 5000,
    PATCH_TRIES = 3, /* the allocator sends the patch again later */
    PATCH_RETRY_MS = 500,
};

struct calls {
    struct kube_client *client;
    struct calls_settings settings;
    struct dispatcher *dispatcher;
    struct worker *queries, *registrations, *patches, *reads;
    struct event_recorder *events;
    struct list_watch_loop *loop;
    atomic_bool node_failed; /* read it again soon */

    /* used by the watch thread only */
    struct pod_reflector reflector;
    uint64_t runs;
    bool active; /* a request of the reflector is in flight */
    int64_t due_ms, node_due_ms;

    pthread_mutex_t lock; /* protects the members below */
    bool relist;
    struct calls_stats stats;
};

/* Counts under the lock. */
static void count(struct calls *c, uint64_t *counter)
{
    pthread_mutex_lock(&c->lock);
    ++*counter;
    pthread_mutex_unlock(&c->lock);
}

/* Records the failure, or clears it if `why` is NULL or of code ERR_NONE. */
static void set_failure(struct calls *c, struct step_failure *f, const struct err *why)
{
    pthread_mutex_lock(&c->lock);
    if (why && why->code != ERR_NONE)
        step_failed(f, clock_mono_ms(), why);
    else
        step_succeeded(f);
    pthread_mutex_unlock(&c->lock);
}

/* Jobs of the workers, which carry them out one at a time. Each worker has a thread. */

struct query {
    uint64_t query;
    bool get;
    char ns[64], name[256]; /* as long as Kubernetes allows */
};

static struct query *query_new(const struct alloc_output *o)
{
    struct query *job = xcalloc(1, sizeof *job);
    job->query = o->query;
    job->get = o->type == ALLOC_GET;
    snprintf(job->ns, sizeof job->ns, "%s", o->ns ? o->ns : "");
    snprintf(job->name, sizeof job->name, "%s", o->name ? o->name : "");
    return job;
}

static void call_podresources(void *ctx, void *job)
{
    struct calls *c = ctx;
    const struct query *query = job;
    const char *socket = c->settings.podresources;
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_PODRESOURCES);
    struct podres_list all = {0};
    struct podres_pod *pod = arena_alloc(&m->arena, sizeof *pod);
    enum podresources_result result = PODRESOURCES_FOUND;
    if (query->get) {
        result = podresources_client_get(socket, span_of(query->ns), span_of(query->name),
                                         &m->arena, pod, &m->err);
        all = (struct podres_list){pod, result == PODRESOURCES_FOUND};
    } else if (podresources_client_list(socket, &m->arena, &all, &m->err)) {
        result = PODRESOURCES_FAILED;
    }
    bool failed = result == PODRESOURCES_FAILED || result == PODRESOURCES_UNSUPPORTED;
    m->in.view =
        (struct alloc_kubelet_view){.query = query->query,
                                    .pods = all.pods,
                                    .n_pods = failed ? 0 : all.n,
                                    .err = failed ? &m->err : NULL,
                                    .unsupported = result == PODRESOURCES_UNSUPPORTED};
    dispatcher_post(c->dispatcher, m);
}

struct endpoint_name {
    enum ids_resource resource;
    char endpoint[64];
};

static void call_register(void *ctx, void *job)
{
    struct calls *c = ctx;
    const struct endpoint_name *e = job;
    struct dp_register r = {.version = SPAN(DP_VERSION),
                            .endpoint = span_of(e->endpoint),
                            .resource = span_of(ids_resource_name(e->resource)),
                            .options = {.preferred_allocation = e->resource != IDS_CORE}};
    cleanup_buf struct buf message = {0}, reply = {0};
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_REGISTERED);
    int rc = proto_encode(&dp_register_type, &r, DP_MESSAGE_MAX, &message, &m->err);
    struct grpcc_request request = {.socket = c->settings.registration,
                                    .method = DP_REGISTER,
                                    .message = buf_span(&message),
                                    .timeout_ms = REGISTER_MS};
    if (rc == 0)
        rc = grpcc_call(&request, &reply, NULL, &m->err);
    if (rc)
        log_warn("kubelet", "rejected the registration; retrying",
                 LOG_SPAN("resource", r.resource), LOG_ERR(&m->err));
    else
        log_info("kubelet", "accepted the registration", LOG_SPAN("resource", r.resource),
                 LOG_S("endpoint", e->endpoint));
    m->resource = e->resource;
    m->flag = rc == 0;
    dispatcher_post(c->dispatcher, m);
}

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
static int call(struct calls *c, const struct kube_request *request, struct buf *body,
                bool *again, struct err *err)
{
    struct httpc_reply reply;
    int rc = kube_call(c->client, request, &reply, err);
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
    struct calls *c = ctx;
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
        rc = call(c, &request, NULL, &again, &err);
    }
    count(c, rc ? &c->stats.patch_failed : &c->stats.patched);
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
    struct calls *c = ctx;
    cleanup_buf struct buf path = {0}, body = {0};
    struct err err = {0};
    bool again;
    (void)job;
    buf_printf(&path, "/api/v1/nodes/%s", c->settings.node);
    struct kube_request request = {
        .method = "GET", .path = path.p, .timeout_ms = CALL_MS};
    if (call(c, &request, &body, &again, &err)) {
        log_warn("api", "cannot read the Node; retrying", LOG_S("node", c->settings.node),
                 LOG_ERR(&err));
        set_failure(c, &c->stats.node, &err);
        atomic_store(&c->node_failed, true);
        return;
    }
    set_failure(c, &c->stats.node, NULL);
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_NODE);
    m->in.cgpu_disable = decode_node(buf_span(&body), &m->in.node);
    dispatcher_post(c->dispatcher, m);
}

/* The watch */

static void on_input(void *ctx, const struct alloc_input *in)
{
    struct calls *c = ctx;
    struct dispatcher_msg *m = dispatcher_input_new(in->type);
    m->in.pod = in->pod;
    m->in.uid = arena_copy(&m->arena, in->uid);
    dispatcher_post(c->dispatcher, m);
}

static void on_invalid(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("api", "ignoring the spec of an invalid pod", LOG_ERR(err));
}

static void on_opened(void *ctx)
{
    struct calls *c = ctx;
    set_failure(c, &c->stats.watch, NULL);
}

static const struct pod_reflector_sink pod_sink = {on_input, on_invalid, on_opened};

static struct list_watch *on_request(void *ctx, size_t slot, struct arena *a,
                                     struct kube_request *request)
{
    struct calls *c = ctx;
    (void)slot;
    pod_reflector_request(&c->reflector, a, request);
    return &c->reflector.in;
}

static bool on_end(void *ctx, size_t slot, const struct err *why)
{
    struct calls *c = ctx;
    struct err err;
    (void)slot;
    int64_t wait = pod_reflector_end(&c->reflector, why, &err);
    c->due_ms = clock_mono_ms() + wait;
    set_failure(c, &c->stats.watch, &err);
    c->active = err.code == ERR_NONE && wait == 0;
    if (err.code == ERR_NONE)
        return c->active; /* the next page, or the watch after a list */
    count(c, &c->stats.watch_failures);
    log_warn("api", "pod watch failed; retrying", LOG_ERR(&err));
    return false;
}

static int64_t on_tick(void *ctx)
{
    struct calls *c = ctx;
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&c->lock);
    bool relist = c->relist;
    c->relist = false;
    c->stats.alive_ms = now;
    pthread_mutex_unlock(&c->lock);
    if (relist && c->reflector.watching) {
        pod_reflector_relist(&c->reflector);
        c->due_ms = now;
        c->active = false; /* the next run ends this one */
    }
    if (!c->active && now >= c->due_ms) {
        list_watch_loop_start(c->loop, 0, &(struct list_watch_run){.run = ++c->runs});
        c->active = true;
    }
    if (atomic_exchange(&c->node_failed, false) && c->node_due_ms > now + NODE_RETRY_MS)
        c->node_due_ms = now + NODE_RETRY_MS;
    if (now >= c->node_due_ms) {
        worker_add(c->reads, xcalloc(1, 1));
        c->node_due_ms = now + c->settings.node_ms;
    }
    return c->due_ms > now ? c->due_ms - now : 1000;
}

static const struct list_watch_fns watch_fns = {
    .request = on_request, .end = on_end, .tick = on_tick};

void calls_carry_out(struct calls *c, const struct alloc_output *o)
{
    switch (o->type) {
    case ALLOC_LIST:
    case ALLOC_GET:
        worker_add(c->queries, query_new(o));
        break;
    case ALLOC_PATCH:
        worker_add(c->patches, patch_new(o));
        break;
    case ALLOC_EVENT: {
        const struct event event = {.kind = EVENT_POD,
                                    .ns = span_of(o->ns),
                                    .name = span_of(o->name),
                                    .uid = span_of(o->uid),
                                    .warning = true,
                                    .unique = true,
                                    .reason = o->reason,
                                    .action = "Allocating",
                                    .note = span_of(o->text)};
        if (!event_recorder_add(c->events, &event))
            log_warn("api", "event not written: too many events",
                     LOG_S("reason", o->reason), LOG_S("namespace", o->ns),
                     LOG_S("pod", o->name));
        break;
    }
    default: /* ALLOC_RELIST */
        pthread_mutex_lock(&c->lock);
        c->relist = true;
        pthread_mutex_unlock(&c->lock);
        list_watch_loop_wake(c->loop);
        break;
    }
}

void calls_register(struct calls *c, enum ids_resource r, const char *endpoint)
{
    struct endpoint_name *e = xcalloc(1, sizeof *e);
    e->resource = r;
    snprintf(e->endpoint, sizeof e->endpoint, "%s", endpoint);
    worker_add(c->registrations, e);
}

struct calls *calls_start(struct kube_client *client,
                          const struct calls_settings *settings,
                          struct dispatcher *dispatcher)
{
    struct calls *c = xcalloc(1, sizeof *c);
    c->client = client;
    c->settings = *settings;
    c->dispatcher = dispatcher;
    c->stats.alive_ms = clock_mono_ms();
    pthread_mutex_init(&c->lock, NULL);
    pod_reflector_init(&c->reflector, settings->node, settings->unit_mib, &pod_sink, c);
    c->loop = list_watch_loop_new(client, 1, &watch_fns, c);
    c->queries = worker_start("podresources", call_podresources, c);
    c->registrations = worker_start("register", call_register, c);
    c->patches = worker_start("patches", patch_pod, c);
    c->reads = worker_start("node", read_node, c);
    c->events = event_recorder_start(
        &(struct event_recorder_settings){.post = kube_send,
                                          .ctx = client,
                                          .controller = "gpushare-device-plugin",
                                          .instance = settings->node,
                                          .seed = rng_entropy()});
    list_watch_loop_thread(c->loop, "pods");
    return c;
}

bool calls_stop(struct calls *c, int64_t until_ms)
{
    if (!c)
        return true;
    list_watch_loop_stop(c->loop);
    return worker_stop_until(c->queries, until_ms) &&
           worker_stop_until(c->registrations, until_ms) &&
           worker_stop_until(c->patches, until_ms) &&
           worker_stop_until(c->reads, until_ms) &&
           event_recorder_stop(c->events, until_ms);
}

void calls_free(struct calls *c)
{
    if (!c)
        return;
    worker_free(c->queries);
    worker_free(c->registrations);
    worker_free(c->patches);
    worker_free(c->reads);
    event_recorder_free(c->events);
    list_watch_loop_free(c->loop);
    pod_reflector_fini(&c->reflector);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void calls_stats(struct calls *c, struct calls_stats *stats)
{
    pthread_mutex_lock(&c->lock);
    *stats = c->stats;
    pthread_mutex_unlock(&c->lock);
    struct event_recorder_stats events = event_recorder_stats(c->events);
    stats->events = events.written;
    stats->events_failed = events.failed;
}
