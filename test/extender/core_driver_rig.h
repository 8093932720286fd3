/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A driver for tests: the test answers its API calls at once, and its lists come from a
 * JSON array of objects.
 */

#include <jansson.h>

#include "apisync/apisync.h"
#include "extender/core_driver.h"
#include "extender/verb.h"
#include "lib/unit.h"

struct core_driver_rig {
    struct core_driver *driver;
    uint64_t runs[CORE_ALL_KINDS];
    struct core_output *deferred[64];
    size_t n_deferred;
    enum err_code bind_answer; /* the API server's answer to a Binding */
    struct buf binding;        /* body of the last Binding */
    unsigned bindings;
    bool follower; /* the lease is held by another replica */
    /* Replaces rig_api if set. */
    void (*perform)(void *ctx, const struct core_output *call, struct arena *arena,
                    struct apisync_answer *answer);
    json_t *listed; /* the objects of rig_deliver */
};

/* The answer to a GET of a pod that was listed as bound. */
static inline void rig_get_pod(struct core_driver_rig *rig,
                               const struct core_output *call, struct arena *arena,
                               struct apisync_result *result)
{
    size_t i;
    json_t *pod;
    result->status = 404;
    json_array_foreach(rig->listed, i, pod)
    {
        const char *uid =
            json_string_value(json_object_get(json_object_get(pod, "metadata"), "uid"));
        if (!uid || strcmp(uid, call->uid) != 0 ||
            !json_object_get(json_object_get(pod, "spec"), "nodeName"))
            continue;
        cleanup_free char *text = json_dumps(pod, JSON_COMPACT);
        result->body = arena_copy(arena, span_of(text));
        result->status = 200;
    }
}

static inline void rig_stream(void *ctx, const struct core_output *o)
{
    struct core_driver_rig *rig = ctx;
    rig->runs[o->kind] = o->run;
}

/* A minimal API server. */
static inline void rig_api(struct core_driver_rig *rig, const struct core_output *call,
                           struct arena *arena, struct apisync_answer *answer)
{
    struct kube_request request;
    struct apisync_result result = {.status = 200, .body = SPAN("{}"), .sent = true};
    apisync_call(call, arena, &request);
#define RIG_LEASE(version, spec)                                                         \
    SPAN("{\"metadata\":{\"name\":\"gpushare-extender\",\"resourceVersion\":\"" version  \
         "\"},\"spec\":{" spec "}}")
    if (call->type == CORE_CALL_LEASE_GET)
        result.body = rig->follower ? RIG_LEASE("1", "\"holderIdentity\":\"other\","
                                                     "\"leaseDurationSeconds\":5")
                                    : RIG_LEASE("1", "");
    if (call->type == CORE_CALL_LEASE_WRITE)
        result.body = RIG_LEASE("2", "\"holderIdentity\":\"me\"");
    if (call->type == CORE_CALL_GET_POD)
        rig_get_pod(rig, call, arena, &result);
    if (call->type == CORE_CALL_BIND) {
        buf_clear(&rig->binding);
        buf_add_span(&rig->binding, request.body);
        rig->bindings++;
        result.status = err_http_status(rig->bind_answer);
        result.body =
            SPAN("{\"kind\":\"Status\",\"message\":\"the API server says no\"}");
    }
    apisync_answer(call, &result, arena, answer);
}

static inline void rig_perform(void *ctx, const struct core_output *call,
                               struct arena *arena, struct apisync_answer *answer)
{
    struct core_driver_rig *rig = ctx;
    if (rig->perform)
        rig->perform(ctx, call, arena, answer);
    else
        rig_api(rig, call, arena, answer);
}

static inline void rig_defer(void *ctx, const struct core_output *o)
{
    struct core_driver_rig *rig = ctx;
    if (rig->perform && o->type == CORE_CALL_LEASE_WRITE) {
        /* With many threads, renewals are answered at once instead of by rig_settle. */
        struct apisync_answer answer;
        cleanup_arena struct arena a = {0};
        rig_api(rig, o, &a, &answer);
        core_driver_input(rig->driver, &answer.input);
        return;
    }
    ck_assert_uint_lt(rig->n_deferred, 64);
    rig->deferred[rig->n_deferred++] = core_output_dup(o);
}

static inline void rig_hurry(void *ctx)
{
    (void)ctx;
}

/* Answers the deferred calls, and those that follow from the answers. */
static inline void rig_settle(struct core_driver_rig *rig)
{
    for (size_t i = 0; i < rig->n_deferred; i++) {
        struct apisync_answer answer;
        cleanup_arena struct arena a = {0};
        rig_perform(rig, rig->deferred[i], &a, &answer);
        core_driver_input(rig->driver, &answer.input);
        free(rig->deferred[i]);
    }
    rig->n_deferred = 0;
}

/* Renews the lease, which allows a bind only for a second or two. */
static inline void rig_renew(struct core_driver_rig *rig)
{
    core_driver_input(rig->driver, &(struct core_input){.type = CORE_TICK});
    rig_settle(rig);
}

static inline void rig_input(void *ctx, const struct core_input *in)
{
    struct core_driver_rig *rig = ctx;
    core_driver_input(rig->driver, in);
}

static inline void rig_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    ck_abort_msg("an object of the test has a fault: %s", err->msg);
}

static const char *const rig_kinds[CORE_ALL_KINDS] = {
    "Node", "Pod", "Scv", "Lease", "ConfigMap", "ResourceQuota"};
static const struct apisync_sink rig_sink = {.input = rig_input, .fault = rig_fault};

static inline bool rig_is(const json_t *object, int kind)
{
    const char *name = json_string_value(json_object_get(object, "kind"));
    return name && !strcmp(name, rig_kinds[kind]);
}

/* Feeds a list or an event of a watch, which is stolen. */
static inline void rig_feed(struct core_driver_rig *rig, int kind, bool watch, json_t *j)
{
    struct apisync feed;
    char *text = json_dumps(j, JSON_COMPACT);
    apisync_start(&feed, (enum core_kind)kind, watch, rig->runs[kind],
                  watch ? SPAN("9") : (struct span){0}, &rig_sink, rig);
    list_watch_begin(&feed.in, 200, -1);
    ck_assert(list_watch_data(&feed.in, text, strlen(text)));
    if (watch)
        ck_assert(list_watch_data(&feed.in, "\n", 1));
    else
        ck_assert(!apisync_end(&feed, NULL));
    apisync_fini(&feed);
    free(text);
    json_decref(j);
}

/* Delivers a list of each kind, from the objects of that kind, which are stolen. In a dialect, pods
 * are listed after ConfigMaps. */
static inline void rig_deliver(struct core_driver_rig *rig, json_t *objects)
{
    const bool waits = !rig->runs[CORE_PODS];
    for (int k = waits ? -1 : 0; k < CORE_ALL_KINDS; k++) {
        int kind = k < 0 ? CORE_CONFIGMAPS : k;
        if (waits && k == CORE_CONFIGMAPS)
            continue;
        size_t i;
        json_t *object,
            *list = json_pack("{s{ss}s[]}", "metadata", "resourceVersion", "9", "items");
        json_array_foreach(objects, i, object)
        {
            if (rig_is(object, kind))
                json_array_append(json_object_get(list, "items"), object);
        }
        rig_feed(rig, kind, false, list);
        if (k < 0)
            rig_settle(rig);
    }
    json_decref(rig->listed);
    rig->listed = objects;
}

/* A watch shows the object, which is stolen. `type`: "ADDED" also replaces. */
static inline void rig_watched(struct core_driver_rig *rig, const char *type,
                               json_t *object)
{
    int kind = 0;
    ck_assert_ptr_nonnull(object);
    while (!rig_is(object, kind))
        ck_assert_int_lt(++kind, CORE_ALL_KINDS);
    json_object_set_new(json_object_get(object, "metadata"), "resourceVersion",
                        json_string("10"));
    rig_feed(rig, kind, true, json_pack("{ssso}", "type", type, "object", object));
}

/* A JSON text; new. */
static inline json_t *rig_json(const char *text)
{
    json_error_t error;
    json_t *j = json_loads(text, 0, &error);
    ck_assert_msg(j != NULL, "%s: %s", error.text, text);
    return j;
}

/* An Scv with this cardList and, each after a comma, other members of the status; new. */
static inline json_t *rig_scv(const char *name, const char *cards, const char *more)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text,
               "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
               "\"name\":\"%s\"},\"status\":{\"cardList\":[%s]%s}}",
               name, cards, more);
    return rig_json(text.p);
}

/* Starts a replica: the leader, or a follower. The settings lack the Lease and the seed. */
static inline void rig_start_core(struct core_driver_rig *rig,
                                  struct core_settings settings, bool follower)
{
    *rig = (struct core_driver_rig){.follower = follower};
    settings.identity = "me";
    settings.lease_namespace = "kube-system";
    settings.lease_name = "gpushare-extender";
    settings.seed = 1;
    struct core_driver_io io = {rig_stream, rig_defer, rig_perform, rig_hurry, rig};
    rig->driver = core_driver_new(&settings, &io);
    rig_renew(rig);  /* the GET of the Lease */
    rig_settle(rig); /* the PUT, after which the pods are listed */
    rig_settle(rig);
}

static inline void rig_start(struct core_driver_rig *rig,
                             const struct ledger_settings *ledger, bool bind_any)
{
    rig_start_core(rig, (struct core_settings){.ledger = *ledger, .bind_any = bind_any},
                   false);
}

static inline void rig_stop(struct core_driver_rig *rig)
{
    for (size_t i = 0; i < rig->n_deferred; i++)
        free(rig->deferred[i]);
    core_driver_free(rig->driver);
    json_decref(rig->listed);
    buf_fini(&rig->binding);
}

typedef unsigned (*rig_verb)(struct verb_call *call);

static inline unsigned rig_call(rig_verb verb, struct verbs *v, struct span body,
                                struct buf *reply)
{
    return verb(&(struct verb_call){.verbs = v, .body = body, .reply = reply});
}

/* The reply of the verb about the pod and these candidates: names, or Node objects. Both are
 * stolen; new. */
static inline json_t *rig_ask_as(struct verbs *v, rig_verb verb, enum verb_source source,
                                 json_t *pod, json_t *candidates, unsigned status)
{
    cleanup_buf struct buf reply = {0};
    bool full = json_is_object(json_array_get(candidates, 0));
    json_t *body =
        full ? json_pack("{s:o,s:{s:o}}", "Pod", pod, "Nodes", "items", candidates)
             : json_pack("{s:o,s:o}", "Pod", pod, "NodeNames", candidates);
    ck_assert_ptr_nonnull(body);
    char *text = json_dumps(body, JSON_COMPACT);
    ck_assert_uint_eq(
        verb(&(struct verb_call){
            .verbs = v, .body = span_of(text), .source = source, .reply = &reply}),
        status);
    free(text);
    json_decref(body);
    return rig_json(reply.p);
}

static inline json_t *rig_ask(struct verbs *v, rig_verb verb, json_t *pod,
                              json_t *candidates)
{
    return rig_ask_as(v, verb, VERB_SCHEDULER, pod, candidates, 200);
}

/* A pending pod of `units` of aliyun.com/gpu-mem, whose name is its UID; new. */
static inline json_t *rig_pod(const char *uid, int units)
{
    return json_pack("{s:s,s:{s:s,s:s,s:s},s:{s:[{s:{s:{s:o}}}]}}", "kind", "Pod",
                     "metadata", "name", uid, "namespace", "default", "uid", uid, "spec",
                     "containers", "resources", "limits", "aliyun.com/gpu-mem",
                     json_sprintf("%d", units));
}
