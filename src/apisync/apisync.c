/* SPDX-License-Identifier: Apache-2.0 */
#include "apisync/apisync.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/reflector.h"
#include "kube/body.h"
#include "kube/jpath.h"

/* Translates between the core and the API server. */

/* -- lists and watches -- */

/* Pods in a terminal phase hold no cards and are excluded; a pod that enters one is
 * DELETED in the watch. */
static const char *const paths[CORE_ALL_KINDS] = {
    [CORE_NODES] = "/api/v1/nodes?",
    [CORE_PODS] = "/api/v1/pods?fieldSelector="
                  "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&",
    [CORE_SCVS] = "/apis/core.run-linux.com/v1/scvs?",
    [CORE_LEASES] =
        "/apis/coordination.k8s.io/v1/namespaces/" KEY_LEASE_NAMESPACE "/leases?",
    [CORE_CONFIGMAPS] = "/api/v1/namespaces/" KEY_UNHEALTHY_NAMESPACE "/configmaps?",
    [CORE_QUOTAS] = "/api/v1/resourcequotas?",
};

void apisync_request(const struct apisync *s, bool gzip, struct arena *a,
                     struct kube_request *request)
{
    uint64_t random = hash_bytes(0, &s->run, sizeof s->run);
    list_watch_request(&s->in, paths[s->kind],
                       reflector_watch_s(REFLECTOR_WATCH_S, random), gzip, a, request);
}

static void read_object(void *ctx, struct jread *j, bool gone);
static void on_bookmark(void *ctx, struct span version);
static void on_fault(void *ctx, const struct err *err);

static const struct list_watch_handler reader = {read_object, on_bookmark, on_fault};

void apisync_start(struct apisync *s, enum core_kind kind, bool watch, uint64_t run,
                   struct span version, const struct apisync_sink *sink, void *ctx)
{
    *s = (struct apisync){
        .kind = kind, .watch = watch, .run = run, .sink = sink, .ctx = ctx};
    list_watch_init(&s->in, &reader, s);
    buf_set(&s->in.version, version);
    list_watch_start(&s->in, watch);
}

void apisync_fini(struct apisync *s)
{
    list_watch_fini(&s->in);
}

static void emit(struct apisync *s, struct core_input in)
{
    in.kind = s->kind;
    in.run = s->run;
    in.retry_after_ms = s->in.retry_after_ms;
    s->sink->input(s->ctx, &in);
}

bool apisync_end(struct apisync *s, const struct err *why)
{
    const struct err *failed = list_watch_end(&s->in, why) ? &s->in.err : NULL;
    if (s->watch)
        emit(s, (struct core_input){.type = CORE_WATCH_ENDED, .err = failed});
    else if (failed)
        emit(s, (struct core_input){.type = CORE_LIST_FAILED, .err = failed});
    else if (s->in.next.n)
        return true;
    else
        emit(s, (struct core_input){.type = CORE_LIST_ENDED,
                                    .version = buf_span(&s->in.version)});
    return false;
}

static void on_bookmark(void *ctx, struct span version)
{
    emit(ctx, (struct core_input){.type = CORE_WATCH_PROGRESS, .version = version});
}

static void on_fault(void *ctx, const struct err *err)
{
    struct apisync *s = ctx;
    s->sink->fault(s->ctx, err);
}

/* After an object: -1: it is truncated, or no JSON. 1: it is invalid, which is reported with
 * its name. */
static int check(struct apisync *s, struct jread *j, const struct object_meta *meta)
{
    struct err err;
    if (jread_check(j, NULL))
        return -1;
    if (!jread_fault(j, &err))
        return 0;
    err_wrap(&err, "%s %.*s%s%.*s", core_kind_name(s->kind), SPAN_ARG(meta->ns),
             meta->ns.n ? "/" : "", SPAN_ARG(meta->name));
    s->sink->fault(s->ctx, &err);
    return 1;
}

static void deliver(struct apisync *s, struct core_input in,
                    const struct object_meta *meta, bool gone)
{
    in.type = CORE_OBJECT;
    in.deleted = gone;
    in.version = s->watch ? meta->version : (struct span){0};
    s->objects++;
    emit(s, in);
}

static void read_pod(struct apisync *s, struct jread *j, bool gone)
{
    struct pod pod;
    pod_read(j, &s->in.arena, &pod);
    int rc = check(s, j, &pod.meta);
    if (rc == 0 || (rc > 0 && pod.meta.uid.n))
        deliver(s, (struct core_input){.pod = &pod, .invalid = rc}, &pod.meta, gone);
}

static void read_node(struct apisync *s, struct jread *j, bool gone)
{
    struct node node;
    node_read(j, &s->in.arena, &node);
    int rc = check(s, j, &node.meta);
    node.damaged = rc;
    if (rc >= 0 && object_is_name(node.meta.name))
        deliver(s, (struct core_input){.node = &node}, &node.meta, gone);
}

static void read_scv(struct apisync *s, struct jread *j, bool gone)
{
    struct scv scv, all;
    struct jread copy = *j;
    scv_read(j, &s->in.arena, &scv);
    if (jread_check(j, NULL))
        return;
    if (s->sink->scv) {
        scv_read_all(&copy, &s->in.arena, &all);
        if (jread_fault(&copy, NULL) == 0)
            s->sink->scv(s->ctx, &all, s->run, gone);
    }
    scv.damaged = check(s, j, &scv.meta);
    if (scv.meta.name.n)
        deliver(s, (struct core_input){.scv = &scv}, &scv.meta, gone);
}

static void read_lease(struct apisync *s, struct jread *j, bool gone)
{
    struct lease lease;
    lease_read(j, &s->in.arena, &lease);
    if (check(s, j, &lease.meta) == 0)
        deliver(s, (struct core_input){.lease = &lease}, &lease.meta, gone);
}

static void read_configmap(struct apisync *s, struct jread *j, bool gone)
{
    struct unhealthy_cards u;
    struct err err;
    node_unhealthy_read(j, &s->in.arena, &u);
    if (check(s, j, &u.meta))
        return;
    if (u.damaged && !gone) {
        err_set(&err, ERR_INVALID,
                "configmap %.*s: \"" KEY_UNHEALTHY_DATA
                "\" is not a comma list of card indexes",
                SPAN_ARG(u.meta.name));
        s->sink->fault(s->ctx, &err);
    }
    deliver(s, (struct core_input){.unhealthy = &u}, &u.meta, gone);
}

static void read_quota(struct apisync *s, struct jread *j, bool gone)
{
    struct quota quota;
    quota_read(j, &s->in.arena, &quota);
    int rc = check(s, j, &quota.meta);
    if (rc)
        quota.hard = SPAN(""); /* it cannot be read */
    if (rc >= 0 && object_is_name(quota.meta.name) && quota.meta.ns.n)
        deliver(s, (struct core_input){.quota = &quota}, &quota.meta, gone);
}

static void read_object(void *ctx, struct jread *j, bool gone)
{
    static void (*const readers[CORE_ALL_KINDS])(struct apisync *, struct jread *,
                                                 bool) = {
        [CORE_NODES] = read_node,
        [CORE_PODS] = read_pod,
        [CORE_SCVS] = read_scv,
        [CORE_LEASES] = read_lease,
        [CORE_CONFIGMAPS] = read_configmap,
        [CORE_QUOTAS] = read_quota,
    };
    struct apisync *s = ctx;
    readers[s->kind](s, j, gone);
}

/* -- their streams on a loop -- */

static void stream_start(void *ctx, size_t kind, const struct list_watch_run *run)
{
    struct apisync_streams *streams = ctx;
    struct apisync *s = &streams->kinds[kind];
    apisync_fini(s);
    apisync_start(s, (enum core_kind)kind, run->watch, run->run, span_of(run->version),
                  streams->sink, streams->ctx);
    s->since_ms = clock_mono_ms();
}

static struct list_watch *stream_request(void *ctx, size_t kind, struct arena *a,
                                         struct kube_request *request)
{
    struct apisync_streams *streams = ctx;
    struct apisync *s = &streams->kinds[kind];
    apisync_request(s, streams->gzip, a, request);
    return &s->in;
}

static bool stream_end(void *ctx, size_t kind, const struct err *why)
{
    struct apisync_streams *streams = ctx;
    struct apisync *s = &streams->kinds[kind];
    if (apisync_end(s, why))
        return true;
    if (s->in.err.code == ERR_NONE && !s->watch)
        log_info("reflector", "list complete", LOG_S("kind", core_kind_name(s->kind)),
                 LOG_I("objects", s->objects),
                 LOG_I("ms", clock_mono_ms() - s->since_ms));
    else
        log_debug("reflector", s->watch ? "watch ended" : "list failed",
                  LOG_S("kind", core_kind_name(s->kind)), LOG_ERR(&s->in.err));
    return false;
}

const struct list_watch_fns apisync_streams_fns = {
    .start = stream_start, .request = stream_request, .end = stream_end};

void apisync_streams_start(struct list_watch_loop *loop, const struct core_output *output)
{
    list_watch_loop_start(loop, output->kind,
                          &(struct list_watch_run){.run = output->run,
                                                   .watch = output->type == CORE_WATCH,
                                                   .version = output->version});
}

void apisync_streams_fini(struct apisync_streams *streams)
{
    for (int kind = 0; kind < CORE_ALL_KINDS; kind++)
        apisync_fini(&streams->kinds[kind]);
}

/* -- calls -- */

enum {
    CALL_MS = 5000,
    /* A Binding: 1 s to connect, its own time limit, and a margin. */
    BIND_MS = 1000 + CORE_BIND_LIMIT_MS + 500,
    RETRY_AFTER_MAX_S = 60,
};

#define PODS   "/api/v1/namespaces/"
#define LEASES "/apis/coordination.k8s.io/v1/namespaces/"

bool apisync_is_call(const struct core_output *output)
{
    return output->type >= CORE_CALL_BIND && output->type <= CORE_CALL_EVICT;
}

void apisync_call(const struct core_output *call, struct arena *a, struct kube_request *r)
{
    cleanup_buf struct buf body = {0};
    const char *ns = call->ns, *name = call->name;
    *r = (struct kube_request){
        .method = "GET", .timeout_ms = CALL_MS, .send_by = call->send_by};
    switch (call->type) {
    case CORE_CALL_BIND:
        body_binding(&body, &(struct body_binding){.ns = span_of(ns),
                                                   .name = span_of(name),
                                                   .uid = span_of(call->uid),
                                                   .node = span_of(call->node),
                                                   .annotations = call->annotations});
        r->method = "POST";
        r->path = arena_printf(a, PODS "%s/pods/%s/binding?timeout=%ds", ns, name,
                               CORE_SERVER_MS / 1000);
        r->timeout_ms = BIND_MS;
        r->tcp_user_timeout_ms = CORE_DELIVERY_MS;
        break;
    case CORE_CALL_GET_POD:
        r->path = arena_printf(a, PODS "%s/pods/%s", ns, name);
        break;
    case CORE_CALL_LEASE_GET:
        r->path = arena_printf(a, LEASES "%s/leases/%s", ns, name);
        r->timeout_ms = call->limit_ms;
        break;
    case CORE_CALL_LEASE_WRITE:
        buf_adds(&body, call->body);
        r->method = call->create ? "POST" : "PATCH";
        r->path = call->create ? arena_printf(a, LEASES "%s/leases", ns)
                               : arena_printf(a, LEASES "%s/leases/%s", ns, name);
        r->timeout_ms = call->limit_ms;
        break;
    case CORE_CALL_NOMINATE:
        body_nomination(&body, span_of(call->uid), span_of(call->node));
        r->method = "PATCH";
        r->path = arena_printf(a, PODS "%s/pods/%s/status", ns, name);
        break;
    case CORE_CALL_EVICT:
        body_eviction(&body, span_of(ns), span_of(name), span_of(call->uid), -1);
        r->method = "POST";
        r->path = arena_printf(a, PODS "%s/pods/%s/eviction", ns, name);
        break;
    default:
        body_annotations(&body, (struct span){0},
                         arena_printf(a, "{\"" KEY_ROOM_SINCE "\":\"%s\"}", call->value));
        r->method = "PATCH";
        r->path = arena_printf(a, "/api/v1/nodes/%s", call->node);
        break;
    }
    r->body = arena_copy(a, buf_span(&body));
    if (!strcmp(r->method, "PATCH"))
        r->content_type = "application/merge-patch+json";
}

static void read_body(const struct core_output *call, struct span body, struct arena *a,
                      struct apisync_answer *answer)
{
    struct jread j;
    struct err err;
    bool pod = call->type == CORE_CALL_GET_POD;
    bool lease = call->type == CORE_CALL_LEASE_GET || call->type == CORE_CALL_LEASE_WRITE;
    if (!pod && !lease)
        return;
    jread_init(&j, body.p, body.n);
    if (pod)
        pod_read(&j, a, &answer->pod);
    else
        lease_read(&j, a, &answer->lease);
    if (jread_finish(&j, &err)) {
        err_set(&answer->err, ERR_INTERNAL, "invalid answer of the API server: %s",
                err.msg);
        answer->input.err = &answer->err;
    } else if (pod) {
        answer->input.pod = &answer->pod;
    } else {
        answer->input.lease = &answer->lease;
    }
}

/* The API server answers an eviction with 429 if a PodDisruptionBudget does not allow it,
 * and also if it is overloaded: only the former has this cause (k8s.io/api/policy/v1,
 * DisruptionBudgetCause). */
static bool is_disruption_budget(struct span body)
{
    json_auto_t *root = jpath_read(body, NULL);
    const json_t *cause;
    bool found = false;
    size_t i;
    json_array_foreach(jpath(root, "details.causes"), i, cause)
    {
        found |= !strcmp(jpath_string(cause, "reason"), "DisruptionBudget");
    }
    return found;
}

void apisync_answer(const struct core_output *call, const struct apisync_result *result,
                    struct arena *a, struct apisync_answer *answer)
{
    *answer = (struct apisync_answer){
        .input = {.type = CORE_ANSWER, .call = call->call, .retry_after_ms = -1}};
    if (result->status == 0) {
        answer->err = *result->why;
        answer->input.err = &answer->err;
        answer->input.not_sent = !result->sent;
    } else if (kube_reply_check(result->status, result->body, &answer->err)) {
        answer->input.err = &answer->err;
        int64_t s = result->retry_after_s;
        if (s > 0)
            answer->input.retry_after_ms =
                1000 * (s < RETRY_AFTER_MAX_S ? s : RETRY_AFTER_MAX_S);
        answer->input.disruption_budget = call->type == CORE_CALL_EVICT &&
                                          result->status == 429 &&
                                          is_disruption_budget(result->body);
    } else {
        read_body(call, result->body, a, answer);
    }
}
