/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The plugin's calls to the kubelet: podresources and Register; and to the API server: the
 * watch of its node's pods, patches, events and reads of the Node.
 */

#include "node/calls.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "domain/node.h"
#include "kube/body.h"
#include "kube/deviceplugin.h"
#include "kube/event_recorder.h"
#include "kube/podresources.h"
#include "wire/grpcc.h"

enum {
    /* The kubelet connects back, for at most 10 s, before it answers. */
    REGISTER_MS = 15 * 1000,
    CALL_MS = 5000,
};

enum kind { QUERY, REGISTER, PATCH, READ_NODE, KINDS };

struct calls {
    const struct node_options *options;
    struct kube_client *client;
    struct dispatcher_msg_queue *queue;
    struct worker *workers[KINDS];
    struct event_recorder *events;
    struct pods_settings pods_settings;
    struct informer *pods;
};

/* A call that waits for the thread of its kind. */
struct job {
    uint64_t query;
    enum ids_resource resource;
    char ns[64], name[256], uid[128]; /* as long as Kubernetes allows; empty: none */
    char text[];                      /* annotations, or the endpoint */
};

static void add_job(struct calls *c, enum kind kind, enum ids_resource r,
                    const struct alloc_output *o)
{
    const char *text = o->text ? o->text : "";
    struct job *job = xcalloc(1, sizeof *job + strlen(text) + 1);
    job->query = o->query;
    job->resource = r;
    snprintf(job->ns, sizeof job->ns, "%s", o->ns ? o->ns : "");
    snprintf(job->name, sizeof job->name, "%s", o->name ? o->name : "");
    snprintf(job->uid, sizeof job->uid, "%s", o->uid ? o->uid : "");
    strcpy(job->text, text);
    worker_add(c->workers[kind], job);
}

/* Get of the pod, or List without a name. */
static void call_podresources(void *ctx, void *arg)
{
    struct calls *c = ctx;
    const struct job *job = arg;
    const char *socket = c->options->podresources;
    struct dispatcher_msg *m = dispatcher_msg_input(ALLOC_IN_PODRESOURCES);
    struct podres_list all = {0};
    struct podres_pod *pod = arena_alloc(&m->arena, sizeof *pod);
    enum podresources_result result = PODRESOURCES_FOUND;
    if (job->name[0]) {
        result = podresources_client_get(socket, span_of(job->ns), span_of(job->name),
                                         &m->arena, pod, &m->err);
        all = (struct podres_list){pod, result == PODRESOURCES_FOUND};
    } else if (podresources_client_list(socket, &m->arena, &all, &m->err)) {
        result = PODRESOURCES_FAILED;
    }
    bool failed = result == PODRESOURCES_FAILED || result == PODRESOURCES_UNSUPPORTED;
    m->in.view =
        (struct alloc_kubelet_view){.query = job->query,
                                    .pods = all.pods,
                                    .n_pods = failed ? 0 : all.n,
                                    .err = failed ? &m->err : NULL,
                                    .unsupported = result == PODRESOURCES_UNSUPPORTED};
    dispatcher_msg_post(c->queue, m);
}

/* Another plugin serves the resource as long as the kubelet has healthy ids of it and none of them
 * is ours: when it stops, they become unhealthy. */
static int check_other(struct calls *c, enum ids_resource r, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct podres_allocatable all;
    const struct span *other = NULL;
    struct ids_id id;
    if (r >= IDS_CARD_RESOURCES)
        return 0;
    if (podresources_client_allocatable(c->options->podresources, &a, &all, err)) {
        if (ids_are_slots(r))
            return err_wrap(err, "podresources");
        *err = (struct err){0};
        return 0;
    }
    ARRAY_EACH_ITEM(const struct podres_devices, of, all.devices, all.n)
    {
        for (size_t i = 0;
             i < of->n_ids && span_eq(of->resource, span_of(ids_resource_name(r))); i++) {
            if (ids_read(r, of->ids[i], &id))
                return 0;
            other = &of->ids[i];
        }
    }
    if (!other)
        return 0;
    err_set(err, ERR_CONFLICT, "the kubelet has its id %.*s of %s", SPAN_ARG(*other),
            ids_resource_name(r));
    event_recorder_add(c->events, &(struct event){.kind = EVENT_NODE,
                                                  .name = span_of(c->options->node_name),
                                                  .uid = span_of(c->options->node_name),
                                                  .warning = true,
                                                  .reason = "GPUOtherPlugin",
                                                  .action = "Registering",
                                                  .note = span_of(err->msg)});
    return -1;
}

static int register_endpoint(const struct calls *c, const struct job *job,
                             struct err *err)
{
    struct dp_register r = {
        .version = SPAN(DP_VERSION),
        .endpoint = span_of(job->text),
        .resource = span_of(ids_resource_name(job->resource)),
        .options = {.preferred_allocation = job->resource != IDS_CORE}};
    cleanup_buf struct buf message = {0}, reply = {0};
    int rc = proto_encode(&dp_register_type, &r, DP_MESSAGE_MAX, &message, err);
    cleanup_free char *socket = xasprintf("%s/" DP_KUBELET_SOCK, c->options->plugin_dir);
    struct grpcc_request request = {.socket = socket,
                                    .method = DP_REGISTER,
                                    .message = buf_span(&message),
                                    .timeout_ms = REGISTER_MS};
    if (rc == 0)
        rc = grpcc_call(&request, &reply, NULL, err);
    if (rc)
        log_warn("kubelet", "rejected the registration; retrying",
                 LOG_SPAN("resource", r.resource), LOG_ERR(err));
    else
        log_info("kubelet", "accepted the registration", LOG_SPAN("resource", r.resource),
                 LOG_S("endpoint", job->text));
    return rc;
}

/* Without an endpoint it only looks for another plugin. */
static void call_register(void *ctx, void *arg)
{
    struct calls *c = ctx;
    const struct job *job = arg;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_REGISTERED);
    m->resource = job->resource;
    if (check_other(c, job->resource, &m->err) == 0 && job->text[0])
        register_endpoint(c, job, &m->err);
    dispatcher_msg_post(c->queue, m);
}

/* The UID is a precondition: a recreated pod of the same name must not be patched. */
static void patch_pod(void *ctx, void *arg)
{
    struct calls *c = ctx;
    const struct job *job = arg;
    cleanup_buf struct buf body = {0}, path = {0};
    struct err err;
    body_annotations(&body, span_of(job->uid), job->text);
    buf_printf(&path, "/api/v1/namespaces/%s/pods/%s", job->ns, job->name);
    const struct kube_request request = {.method = "PATCH",
                                         .path = path.p,
                                         .content_type = "application/merge-patch+json",
                                         .body = buf_span(&body),
                                         .timeout_ms = CALL_MS};
    if (kube_send(c->client, &request, &err) == 0)
        return;
    if (err.code == ERR_NOT_FOUND)
        log_debug("api", "pod was deleted before it was annotated",
                  LOG_S("pod", job->name));
    else
        log_warn("api", "cannot annotate pod; retrying later",
                 LOG_S("namespace", job->ns), LOG_S("pod", job->name), LOG_ERR(&err));
}

static void read_node(void *ctx, void *job)
{
    struct calls *c = ctx;
    cleanup_buf struct buf path = {0};
    struct dispatcher_msg *m = dispatcher_msg_input(ALLOC_IN_NODE);
    cleanup_reply struct httpc_reply reply = {0};
    struct node node = {0};
    struct jread j;
    (void)job;
    buf_printf(&path, "/api/v1/nodes/%s", c->options->node_name);
    const struct kube_request request = {
        .method = "GET", .path = path.p, .timeout_ms = CALL_MS};
    int rc = kube_ask(c->client, &request, &reply, &m->err);
    if (rc == 0) {
        jread_init(&j, reply.body.p, reply.body.n);
        node_read(&j, &m->arena, &node);
        rc = jread_check(&j, &m->err);
    }
    if (rc)
        log_warn("api", "cannot read the Node; retrying",
                 LOG_S("node", c->options->node_name), LOG_ERR(&m->err));
    m->in.err = rc ? &m->err : NULL;
    m->in.cgpu_disable = node.cgpu_disable;
    m->in.dialect = arena_copy(&m->arena, node.dialect); /* of the reply */
    snprintf(m->in.node.runtime, sizeof m->in.node.runtime, "%.*s",
             SPAN_ARG(node.runtime));
    snprintf(m->in.node.kubelet, sizeof m->in.node.kubelet, "%.*s",
             SPAN_ARG(node.kubelet));
    dispatcher_msg_post(c->queue, m);
}

/* -- the watch of the node's pods -- */

static int on_pod(void *ctx, struct jread *j, struct arena *a, bool deleted,
                  struct span *version, struct err *err)
{
    const struct pods_settings *s = ctx;
    struct alloc_input in = {.type = ALLOC_IN_POD_DELETED};
    struct pod pod;
    pod_read(j, a, &pod);
    if (jread_check(j, NULL))
        return 0;
    if (jread_fault(j, err)) {
        err_wrap(err, "pod %.*s/%.*s", SPAN_ARG(pod.meta.ns), SPAN_ARG(pod.meta.name));
        log_warn("api", "ignoring the spec of an invalid pod", LOG_ERR(err));
        pod = (struct pod){.meta = pod.meta};
    }
    *version = pod.meta.version;
    if (!pod.meta.uid.n || !pod.meta.name.n)
        return 0;
    in.uid = pod.meta.uid;
    if (!deleted) {
        in.type = ALLOC_IN_POD;
        in.pod = pod_allocation_new(&pod, s->unit_mib, atomic_load(&s->dialect));
    }
    s->input(s->ctx, &in);
    return 0;
}

static void on_pods_listed(void *ctx, bool complete)
{
    const struct pods_settings *s = ctx;
    s->input(s->ctx, &(struct alloc_input){.type = complete ? ALLOC_IN_LIST_ENDED
                                                            : ALLOC_IN_LIST_STARTED});
}

struct informer *pods_informer_new(struct pods_settings *settings,
                                   struct kube_client *client)
{
    return informer_new(&(struct informer_settings){
        .client = client,
        .path = "/api/v1/pods?fieldSelector=spec.nodeName%3D",
        .value = settings->node,
        .name = "pods",
        .not_served = "",
        .denied = settings->denied,
        .kind = {.watch_s = REFLECTOR_POD_WATCH_S, .spread_ms = REFLECTOR_SPREAD_MS},
        .seed = hash_bytes(0, settings->node, strlen(settings->node)),
        .object = on_pod,
        .listed = on_pods_listed,
        .ctx = settings});
}

/* -- all calls -- */

static void post_input(void *ctx, const struct alloc_input *in)
{
    struct calls *c = ctx;
    struct dispatcher_msg *m = dispatcher_msg_input(in->type);
    m->in.pod = in->pod;
    m->in.uid = arena_copy(&m->arena, in->uid);
    dispatcher_msg_post(c->queue, m);
}

static void add_event(struct calls *c, const struct alloc_output *o)
{
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
        log_warn("api", "event not written: too many events", LOG_S("reason", o->reason),
                 LOG_S("namespace", o->ns), LOG_S("pod", o->name));
}

void calls_carry_out(struct calls *c, const struct alloc_output *o)
{
    if (o->type == ALLOC_EVENT)
        add_event(c, o);
    else if (o->type == ALLOC_RELIST) {
        atomic_store(&c->pods_settings.dialect, o->dialect);
        informer_relist(c->pods);
    } else
        add_job(c,
                o->type == ALLOC_PATCH       ? PATCH
                : o->type == ALLOC_READ_NODE ? READ_NODE
                                             : QUERY,
                IDS_MEM, o);
}

void calls_register(struct calls *c, enum ids_resource r, const char *endpoint)
{
    add_job(c, REGISTER, r, &(struct alloc_output){.text = endpoint});
}

struct calls *calls_start(const struct node_options *options, struct kube_client *client,
                          struct dispatcher_msg_queue *queue)
{
    static const struct {
        const char *name;
        void (*work)(void *ctx, void *job);
    } kinds[KINDS] = {[QUERY] = {"podresources", call_podresources},
                      [REGISTER] = {"register", call_register},
                      [PATCH] = {"patches", patch_pod},
                      [READ_NODE] = {"node", read_node}};
    struct calls *c = xcalloc(1, sizeof *c);
    c->options = options;
    c->client = client;
    c->queue = queue;
    for (int i = 0; i < KINDS; i++)
        c->workers[i] = worker_start(kinds[i].name, kinds[i].work, c);
    c->events = event_recorder_start(
        &(struct event_recorder_settings){.post = kube_send,
                                          .ctx = client,
                                          .controller = "gpushare-device-plugin",
                                          .instance = options->node_name,
                                          .seed = rng_entropy()});
    c->pods_settings = (struct pods_settings){.node = options->node_name,
                                              .unit_mib = options->unit_mib,
                                              .input = post_input,
                                              .ctx = c};
    c->pods = pods_informer_new(&c->pods_settings, client);
    informer_start(c->pods, "pods");
    return c;
}

bool calls_stop(struct calls *c, int64_t until_ms)
{
    if (!c)
        return true;
    informer_stop(c->pods);
    for (int i = 0; i < KINDS; i++)
        if (!worker_stop_until(c->workers[i], until_ms))
            return false;
    return event_recorder_stop(c->events, until_ms);
}

void calls_free(struct calls *c)
{
    if (!c)
        return;
    for (int i = 0; i < KINDS; i++)
        worker_free(c->workers[i]);
    event_recorder_free(c->events);
    informer_free(c->pods);
    free(c);
}

struct informer_status calls_watch_status(struct calls *c)
{
    return informer_status(c->pods);
}
