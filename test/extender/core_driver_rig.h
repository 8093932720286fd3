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
    uint64_t runs[CORE_KINDS];
    struct core_output *deferred[64];
    size_t n_deferred;
    enum err_code bind_answer; /* the API server's answer to a Binding */
    struct buf binding;        /* body of the last Binding */
    unsigned bindings;
    bool follower; /* the lease is held by another replica */
    /* Replaces rig_api if set. */
    void (*perform)(void *ctx, const struct core_output *call, struct arena *arena,
                    struct apisync_answer *answer);
};

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
    if (call->type == CORE_CALL_LEASE_GET)
        result.body =
            SPAN("{\"metadata\":{\"name\":\"gpushare-extender\",\"resourceVersion\":"
                 "\"1\"},\"spec\":{}}");
    if (call->type == CORE_CALL_LEASE_GET && rig->follower)
        result.body =
            SPAN("{\"metadata\":{\"name\":\"gpushare-extender\",\"resourceVersion\":"
                 "\"1\"},\"spec\":{\"holderIdentity\":\"other\","
                 "\"leaseDurationSeconds\":5}}");
    if (call->type == CORE_CALL_LEASE_WRITE)
        result.body =
            SPAN("{\"metadata\":{\"name\":\"gpushare-extender\",\"resourceVersion\":"
                 "\"2\"},\"spec\":{\"holderIdentity\":\"me\"}}");
    if (call->type == CORE_CALL_GET_POD)
        result.status = 404;
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

/* Delivers a list of each kind, from the objects of that kind. */
static inline void rig_deliver(struct core_driver_rig *rig, json_t *objects)
{
    static const char *const kinds[CORE_KINDS] = {"Node", "Pod", "Scv", "Lease",
                                                  "ConfigMap"};
    static const struct apisync_sink sink = {.input = rig_input, .fault = rig_fault};
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct apisync feed;
        size_t i;
        json_t *object,
            *list = json_pack("{s{ss}s[]}", "metadata", "resourceVersion", "9", "items");
        json_array_foreach(objects, i, object)
        {
            const char *name = json_string_value(json_object_get(object, "kind"));
            if (name && !strcmp(name, kinds[kind]))
                json_array_append(json_object_get(list, "items"), object);
        }
        char *text = json_dumps(list, JSON_COMPACT);
        apisync_start(&feed, (enum core_kind)kind, false, rig->runs[kind],
                      (struct span){0}, &sink, rig);
        list_watch_begin(&feed.in, 200, -1);
        ck_assert(list_watch_data(&feed.in, text, strlen(text)));
        ck_assert(!apisync_end(&feed, NULL));
        apisync_fini(&feed);
        free(text);
        json_decref(list);
    }
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

static inline void rig_start_as(struct core_driver_rig *rig,
                                const struct ledger_settings *ledger, bool bind_any,
                                bool follower)
{
    rig_start_core(rig, (struct core_settings){.ledger = *ledger, .bind_any = bind_any},
                   follower);
}

static inline void rig_start(struct core_driver_rig *rig,
                             const struct ledger_settings *ledger, bool bind_any)
{
    rig_start_as(rig, ledger, bind_any, false);
}

static inline void rig_stop(struct core_driver_rig *rig)
{
    for (size_t i = 0; i < rig->n_deferred; i++)
        free(rig->deferred[i]);
    core_driver_free(rig->driver);
    buf_fini(&rig->binding);
}

typedef unsigned (*rig_verb)(struct verb_call *call);

static inline unsigned rig_call(rig_verb verb, struct verbs *v, struct span body,
                                struct buf *reply)
{
    return verb(&(struct verb_call){.verbs = v, .body = body, .reply = reply});
}

/* The reply of the verb about these nodes and a pod of `units` of aliyun.com/gpu-mem. New. */
static inline json_t *rig_ask(struct verbs *v, rig_verb verb, const char *units,
                              json_t *names)
{
    cleanup_buf struct buf reply = {0};
    json_t *body =
        json_pack("{s:{s:{s:s,s:s,s:s},s:{s:[{s:{s:{s:s}}}]}},s:O}", "Pod", "metadata",
                  "name", "p", "namespace", "default", "uid", "u", "spec", "containers",
                  "resources", "limits", "aliyun.com/gpu-mem", units, "NodeNames", names);
    char *text = json_dumps(body, JSON_COMPACT);
    ck_assert_uint_eq(rig_call(verb, v, span_of(text), &reply), 200);
    free(text);
    json_decref(body);
    json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}
