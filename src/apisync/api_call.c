/* SPDX-License-Identifier: Apache-2.0 */
#include "apisync/api_call.h"

#include "base/mem.h"
#include "domain/keys.h"

enum {
    CALL_MS = 5000,
    LEASE_MS = 2000, /* less than half the time that a lease has left at a renewal */
    /* A Binding: 1 s to connect, its own time limit, and a margin. */
    BIND_MS = 1000 + CORE_BIND_LIMIT_MS + 500,
};

#define LEASES "/apis/coordination.k8s.io/v1/namespaces/"

bool api_call_is(const struct core_output *output)
{
    switch (output->type) {
    case CORE_CALL_BIND:
    case CORE_CALL_GET_POD:
    case CORE_CALL_LEASE_GET:
    case CORE_CALL_LEASE_WRITE:
    case CORE_CALL_WAKEUP:
    case CORE_CALL_NOMINATE:
    case CORE_CALL_EVICT:
        return true;
    default:
        return false;
    }
}

static const char *path(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static const char *path(struct arena *a, const char *fmt, ...)
{
    cleanup_buf struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return arena_copy(a, buf_span(&b)).p;
}

/* One write with node, annotations and UID: the API server rejects it for another pod of
 * the same name. */
static void binding(const struct core_output *call, struct buf *out)
{
    buf_adds(out, "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":");
    buf_add_json(out, span_of(call->name));
    buf_adds(out, ",\"namespace\":");
    buf_add_json(out, span_of(call->ns));
    buf_adds(out, ",\"uid\":");
    buf_add_json(out, span_of(call->uid));
    if (call->annotations) {
        buf_adds(out, ",\"annotations\":");
        buf_adds(out, call->annotations);
    }
    buf_adds(out, "},\"target\":{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":");
    buf_add_json(out, span_of(call->node));
    buf_adds(out, "}}");
}

static void bind_request(const struct core_output *call, struct arena *a,
                         struct kube_request *r)
{
    cleanup_buf struct buf body = {0};
    binding(call, &body);
    r->method = "POST";
    r->path = path(a, "/api/v1/namespaces/%s/pods/%s/binding?timeout=%ds", call->ns,
                   call->name, CORE_SERVER_MS / 1000);
    r->body = arena_copy(a, buf_span(&body));
    r->timeout_ms = BIND_MS;
    r->tcp_user_timeout_ms = CORE_DELIVERY_MS;
    r->send_by = call->send_by;
}

static void wakeup_request(const struct core_output *call, struct arena *a,
                           struct kube_request *r)
{
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"metadata\":{\"annotations\":{\"" KEY_ROOM_SINCE "\":");
    buf_add_json(&body, span_of(call->value));
    buf_adds(&body, "}}}");
    r->method = "PATCH";
    r->content_type = "application/merge-patch+json";
    r->path = path(a, "/api/v1/nodes/%s", call->node);
    r->body = arena_copy(a, buf_span(&body));
}

/* The UID makes the API server reject the patch for another pod of the same name. */
static void nominate_request(const struct core_output *call, struct arena *a,
                             struct kube_request *r)
{
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"metadata\":{\"uid\":");
    buf_add_json(&body, span_of(call->uid));
    buf_adds(&body, "},\"status\":{\"nominatedNodeName\":");
    if (call->node)
        buf_add_json(&body, span_of(call->node));
    else
        buf_adds(&body, "null");
    buf_adds(&body, "}}");
    r->method = "PATCH";
    r->content_type = "application/merge-patch+json";
    r->path = path(a, "/api/v1/namespaces/%s/pods/%s/status", call->ns, call->name);
    r->body = arena_copy(a, buf_span(&body));
    r->send_by = call->send_by;
}

static void evict_request(const struct core_output *call, struct arena *a,
                          struct kube_request *r)
{
    cleanup_buf struct buf body = {0};
    buf_adds(
        &body,
        "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":");
    buf_add_json(&body, span_of(call->name));
    buf_adds(&body, ",\"namespace\":");
    buf_add_json(&body, span_of(call->ns));
    buf_adds(&body, "},\"deleteOptions\":{\"preconditions\":{\"uid\":");
    buf_add_json(&body, span_of(call->uid));
    buf_adds(&body, "}}}");
    r->method = "POST";
    r->path = path(a, "/api/v1/namespaces/%s/pods/%s/eviction", call->ns, call->name);
    r->body = arena_copy(a, buf_span(&body));
    r->send_by = call->send_by;
}

/* A patch keeps labels and annotations of other writers. It has a resourceVersion, so it
 * conflicts like a PUT. */
static void lease_request(const struct core_output *call, struct arena *a,
                          struct kube_request *r)
{
    if (call->create) {
        r->method = "POST";
        r->path = path(a, LEASES "%s/leases", call->ns);
    } else {
        r->method = "PATCH";
        r->content_type = "application/merge-patch+json";
        r->path = path(a, LEASES "%s/leases/%s", call->ns, call->name);
    }
    r->body = arena_copy(a, span_of(call->body));
    r->timeout_ms = LEASE_MS;
}

void api_call_request(const struct core_output *call, struct arena *a,
                      struct kube_request *r)
{
    *r = (struct kube_request){.method = "GET", .timeout_ms = CALL_MS};
    switch (call->type) {
    case CORE_CALL_BIND:
        bind_request(call, a, r);
        break;
    case CORE_CALL_GET_POD:
        r->path = path(a, "/api/v1/namespaces/%s/pods/%s", call->ns, call->name);
        break;
    case CORE_CALL_LEASE_GET:
        r->path = path(a, LEASES "%s/leases/%s", call->ns, call->name);
        r->timeout_ms = LEASE_MS;
        break;
    case CORE_CALL_LEASE_WRITE:
        lease_request(call, a, r);
        break;
    case CORE_CALL_NOMINATE:
        nominate_request(call, a, r);
        break;
    case CORE_CALL_EVICT:
        evict_request(call, a, r);
        break;
    default:
        wakeup_request(call, a, r);
        break;
    }
}

static void read_body(const struct core_output *call, struct span body, struct arena *a,
                      struct api_call_answer *answer)
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

static bool has_cause(struct jread *j)
{
    struct jread_str key, reason;
    bool found = false;
    jread_array(j, "details.causes");
    while (jread_item(j)) {
        jread_object(j, "details.causes[]");
        while (jread_member(j, &key))
            if (!jread_key_is(key, "reason"))
                jread_skip(j);
            else if (jread_string(j, "details.causes[].reason", &reason))
                found |= jread_key_is(reason, "DisruptionBudget");
    }
    return found;
}

/* The API server answers an eviction with 429 if a PodDisruptionBudget does not allow it,
 * and also if it is overloaded: only the former has this cause (k8s.io/api/policy/v1,
 * DisruptionBudgetCause). */
static bool is_disruption_budget(struct span body)
{
    struct jread j;
    struct jread_str key;
    struct err err;
    bool found = false;
    jread_init(&j, body.p, body.n);
    jread_object(&j, "status");
    while (jread_member(&j, &key)) {
        if (!jread_key_is(key, "details")) {
            jread_skip(&j);
            continue;
        }
        jread_object(&j, "details");
        while (jread_member(&j, &key))
            if (jread_key_is(key, "causes"))
                found |= has_cause(&j);
            else
                jread_skip(&j);
    }
    return jread_finish(&j, &err) == 0 && found;
}

void api_call_answer(const struct core_output *call, const struct api_call_result *result,
                     struct arena *a, struct api_call_answer *answer)
{
    *answer = (struct api_call_answer){
        .input = {.type = CORE_ANSWER, .call = call->call, .retry_after_ms = -1}};
    if (result->status == 0) {
        answer->err = *result->why;
        answer->input.err = &answer->err;
        answer->input.not_sent = !result->sent;
    } else if (kube_reply_check(result->status, result->body, &answer->err)) {
        answer->input.err = &answer->err;
        if (result->retry_after_s > 0)
            answer->input.retry_after_ms = result->retry_after_s * 1000;
        answer->input.disruption_budget = call->type == CORE_CALL_EVICT &&
                                          result->status == 429 &&
                                          is_disruption_budget(result->body);
    } else {
        read_body(call, result->body, a, answer);
    }
}
