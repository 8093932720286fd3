/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "kube/events.h"
#include "plugin/plugin_api_priv.h"

enum {
    CALL_MS = 5000,
    PATCH_TRIES = 3, /* the allocator sends the patch again later */
    PATCH_RETRY_MS = 500,
};

enum job_kind { JOB_PATCH, JOB_EVENT, JOB_NODE };
struct job {
    enum job_kind kind;
    char *ns, *name, *uid, *reason, *text; /* stored behind the struct */
};

static struct job *job_new(enum job_kind kind, const struct alloc_output *o)
{
    const char *from[] = {o->ns, o->name, o->uid, o->reason,
                          o->annotations ? o->annotations : o->text};
    size_t n = 0, sizes[ARRAY_LEN(from)];
    for (size_t i = 0; i < ARRAY_LEN(from); i++)
        n += sizes[i] = from[i] ? strlen(from[i]) + 1 : 0;
    struct job *job = xcalloc(1, sizeof *job + n);
    char **to[] = {&job->ns, &job->name, &job->uid, &job->reason, &job->text};
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
    buf_adds(&body, "{\"metadata\":{\"uid\":");
    buf_add_json(&body, span_of(job->uid));
    buf_printf(&body, ",\"annotations\":%s}}", job->text);
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
    plugin_api_count(api, rc ? &api->stats.patch_failed : &api->stats.patched);
    if (rc && err.code == ERR_NOT_FOUND)
        log_debug("api", "pod was deleted before it was annotated",
                  LOG_S("pod", job->name));
    else if (rc)
        log_warn("api", "cannot annotate pod; retrying later",
                 LOG_S("namespace", job->ns), LOG_S("pod", job->name), LOG_ERR(&err));
}

static void event(struct plugin_api *api, const struct job *job)
{
    cleanup_buf struct buf body = {0}, path = {0};
    struct event_source source = {"gpushare-device-plugin", api->settings.node};
    struct event what = {.kind = EVENT_POD,
                         .ns = span_of(job->ns),
                         .name = span_of(job->name),
                         .uid = span_of(job->uid),
                         .warning = true,
                         .reason = job->reason,
                         .action = "Allocating",
                         .note = span_of(job->text)};
    struct err err = {0};
    bool again;
    if (!event_write(&source, &what, clock_wall_ns(), 1, &path, &body)) {
        plugin_api_count(api, &api->stats.events_failed);
        return;
    }
    struct kube_request request = {
        .method = "POST", .path = path.p, .body = buf_span(&body), .timeout_ms = CALL_MS};
    int rc = call(api, &request, NULL, &again, &err);
    plugin_api_count(api, rc ? &api->stats.events_failed : &api->stats.events);
    if (rc)
        log_warn("api", "cannot write event", LOG_S("pod", job->name), LOG_ERR(&err));
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
        plugin_api_set_failure(api, &api->stats.node, &err);
        atomic_store(&api->node_failed, true);
        return;
    }
    plugin_api_set_failure(api, &api->stats.node, NULL);
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_NODE);
    m->flag = decode_node(buf_span(&body), &m->node);
    dispatcher_post(api->dispatcher, m);
}

void plugin_api_on_job(void *ctx, void *job)
{
    const struct job *j = job;
    if (j->kind == JOB_PATCH)
        patch(ctx, j);
    else if (j->kind == JOB_EVENT)
        event(ctx, j);
    else
        read_node(ctx);
}

void plugin_api_patch(struct plugin_api *api, const struct alloc_output *o)
{
    worker_add(api->patches, job_new(JOB_PATCH, o));
}

void plugin_api_event(struct plugin_api *api, const struct alloc_output *o)
{
    worker_add(api->events, job_new(JOB_EVENT, o));
}

void plugin_api_read_node(struct plugin_api *api)
{
    worker_add(api->events, job_new(JOB_NODE, &(struct alloc_output){0}));
}
