/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/api.h"
#include "node/samples.h"

/*
 * A publisher under test: time that the test sets, the outputs of the last step, and
 * answers in the form of an API server. Objects are JSON with ' for ".
 */

static struct publisher *publisher;
static struct step_outputs outputs;
static struct arena arena;
static int64_t now_ms;
static struct informer_status watch; /* of the Scv */

#define NODE_UID "uid-of-node"
#define NODE     "{'metadata':{'name':'n1','uid':'" NODE_UID "'}}"
#define OWNER    "{'apiVersion':'v1','kind':'Node','name':'n1','uid':'" NODE_UID "'}"
#define CARD(n)  "{'uuid':'GPU-" #n "','memoryTotal':2097152,'memoryFree':2097152}"
#define USED(n)  "{'uuid':'GPU-" #n "','memoryTotal':2097152,'memoryFree':1048576}"
#define SCV(version, more)                                                               \
    "{'metadata':{'name':'n1','uid':'u1','resourceVersion':'" version                    \
    "','ownerReferences':[" OWNER "]}" more "}"

static inline void fixture_begin(void)
{
    static const struct publisher_settings settings = {
        .node = "n1",
        .interval_ms = 1000,
        .refresh_ms = 60000,
        .renew_ms = 10000,
        .grace_ms = 40000,
        .late_ms = 15000,
        .sampler_limit_ms = 30000,
        .with_pods = true,
        .pods_limit_ms = 60000,
        .cards = {.keep_lost_ms = 3600000,
                  .health = {.unhealthy_after_ms = 3000,
                             .healthy_after_ms = 30000,
                             .xid_hold_ms = 600000}},
        .seed = 7,
    };
    now_ms = 1000000;
    watch = (struct informer_status){.unknown_since_ms = now_ms, .alive_ms = now_ms};
    publisher = publisher_new(&settings, (struct step_time){now_ms, 1795338000000000000});
}

static inline void fixture_end(void)
{
    publisher_free(publisher);
    step_outputs_fini(&outputs);
    arena_fini(&arena);
}

static inline struct step_time fixture_now(void)
{
    return (struct step_time){now_ms, (1795338000000 + now_ms) * 1000000};
}

static inline void step(struct publisher_input in)
{
    step_outputs_reset(&outputs);
    in.watch = &watch;
    publisher_step(publisher, fixture_now(), &in, &outputs);
}

static inline void tick(int64_t ms)
{
    now_ms += ms;
    step((struct publisher_input){.type = PUBLISHER_TICK});
}

/* Advances the time with one tick per second. Keeps the outputs of the last tick. */
static inline void pass(int64_t ms)
{
    for (; ms > 1000; ms -= 1000) {
        tick(1000);
        if (outputs.n + outputs.n_lines)
            return;
    }
    tick(ms);
}

static inline void is_quiet(void)
{
    ck_assert_uint_eq(outputs.n + outputs.n_lines, 0);
}

static inline struct span json(const char *text)
{
    char *copy = (char *)arena_copy(&arena, span_of(text)).p;
    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    return span_of(copy);
}

/* The only output of the type; NULL: there is none. */
static inline const struct publisher_output *out(enum publisher_output_type type)
{
    const struct publisher_output *found = NULL, *o = outputs.items;
    for (size_t i = 0; i < outputs.n; i++, o++) {
        if (o->type != type)
            continue;
        ck_assert_msg(!found, "twice: %d", (int)type);
        found = o;
    }
    return found;
}

static inline bool logged(const char *text)
{
    for (size_t i = 0; i < outputs.n_lines; i++)
        if (strstr(outputs.lines[i].text, text))
            return true;
    return false;
}

/* The call of that type, which must be there: its number and its body. */
static uint64_t call_id;
static const char *call_body;
static inline void called(enum publisher_output_type type)
{
    const struct publisher_output *o = out(type);
    ck_assert_msg(o != NULL, "no call %d", (int)type);
    call_id = o->call;
    call_body = o->body ? arena_copy(&arena, span_of(o->body)).p : "";
}

static inline void sampled(const char *cards)
{
    step((struct publisher_input){.type = PUBLISHER_SAMPLED, .sample = sample_of(cards)});
}

static inline void sample_failed(const char *why)
{
    struct err err;
    err_set(&err, ERR_NOT_FOUND, "%s", why);
    step((struct publisher_input){.type = PUBLISHER_SAMPLED, .err = &err});
}

static inline void answer(uint64_t call, const char *object)
{
    struct api_object o;
    struct err err;
    struct publisher_input in = {.type = PUBLISHER_ANSWER, .call = call};
    if (object) {
        ck_assert_done(api_object_read(json(object), &arena, &o, &err), err);
        in.object = &o;
    }
    step(in);
}

static inline void refuse(uint64_t call, enum err_code code, const char *why)
{
    struct err err;
    err_set(&err, code, "%s", why);
    step((struct publisher_input){.type = PUBLISHER_ANSWER, .call = call, .err = &err});
}

static inline void event(bool gone, const char *object)
{
    struct api_object o;
    struct err err;
    ck_assert_done(api_object_read(json(object), &arena, &o, &err), err);
    step((struct publisher_input){.type = PUBLISHER_OBJECT, .gone = gone, .object = &o});
}

/* A list shows the Scv, or none. */
static inline void listed(const char *object)
{
    step((struct publisher_input){.type = PUBLISHER_LIST_STARTED});
    if (object)
        event(false, object);
    watch.unknown_since_ms = -1;
    step((struct publisher_input){.type = PUBLISHER_LIST_ENDED});
}

static uint64_t node_call;

/* The first step asks for the Node. */
static inline void begin_calls(void)
{
    tick(0);
    called(PUBLISHER_GET_NODE);
    node_call = call_id;
}

/* A call of the type is made, and answered. */
static inline void answered(enum publisher_output_type type, const char *object)
{
    called(type);
    answer(call_id, object);
}

static inline void refused(enum publisher_output_type type, enum err_code code,
                           const char *why)
{
    called(type);
    refuse(call_id, code, why);
}

#define LEASE "{'metadata':{'name':'n1','ownerReferences':[" OWNER "]}}"
#define FIRST SCV("11", ",'spec':{'updateInterval':1000},'status':{'a':1}")

/* Everything is there: the Scv that was created with one card, its watch, the Lease. */
static inline void set_up(void)
{
    begin_calls();
    listed(NULL);
    answer(node_call, NODE);
    sampled(CARD(0));
    answered(PUBLISHER_CREATE, FIRST);
    answered(PUBLISHER_PATCH_LEASE, LEASE);
    event(false, FIRST);
    is_quiet();
}

static inline bool is_well(enum publisher_check part)
{
    return publisher_check(publisher, fixture_now(), part, NULL, NULL) == 0;
}

/* Does the body hold this piece (with ' for ")? */
#define ck_assert_body(text)                                                             \
    ck_assert_msg(strstr(call_body, json(text).p) != NULL, "no %s in %s", json(text).p,  \
                  call_body)
#define ck_assert_no_body(text)                                                          \
    ck_assert_msg(strstr(call_body, json(text).p) == NULL, "%s in %s", json(text).p,     \
                  call_body)
