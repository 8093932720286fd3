/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver_rig.h"

#include "extender/verb.h"
#include "kube/event_recorder.h"

/*
 * Once they have been called, filter and prioritize allocate nothing for a node: they reuse
 * their memory. (The program is linked with --wrap for malloc and the like; allocations of the
 * server are measured by `make bench`.)
 */

enum { NODES = 200, WARM_UP = 4, CALLS = 30, OF_THE_REPLY = 8 /* of a call */ };

/* -- counting -- */

static _Thread_local unsigned long allocations;

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t count, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t count, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);

void *__wrap_malloc(size_t n)
{
    allocations++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
    allocations++;
    return __real_calloc(count, n);
}

void *__wrap_realloc(void *p, size_t n)
{
    allocations++;
    return __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t count, size_t n)
{
    allocations++;
    return __real_reallocarray(p, count, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    allocations++;
    return __real_aligned_alloc(align, n);
}

char *__wrap_strdup(const char *s)
{
    allocations++;
    return __real_strdup(s);
}

/* -- the verbs -- */

static struct core_driver_rig rig;
static struct verbs *verbs;
static struct counters *counters;
static struct event_recorder *recorder;

static void add_name(struct buf *out, int i)
{
    buf_printf(out, "%.*s%d", i % 60,
               "a-name-that-is-longer-than-most-names-of-nodes-are-", i);
}

/* Nodes that fit and nodes that do not. */
static void deliver_nodes(void)
{
    json_t *objects = json_array();
    for (int i = 0; i < NODES; i++) {
        cleanup_buf struct buf name = {0}, card = {0};
        add_name(&name, i);
        buf_printf(
            &card,
            "{\"id\":0,\"health\":\"%sealthy\",\"totalMemory\":%d,\"model\":\"%s\","
            "\"clock\":%d}",
            i % 5 ? "H" : "Unh", 1000 * (i % 3 + 1), i % 2 ? "Tesla T4" : "B\\\"",
            5000 + i % 4);
        json_array_append_new(objects, rig_scv(name.p, card.p, ""));
    }
    rig_deliver(&rig, objects);
}

static int post(void *ctx, const struct kube_request *request, struct err *err)
{
    (void)ctx;
    (void)request;
    (void)err;
    return 0;
}

static void begin(void)
{
    static const struct event_recorder_settings recording = {.post = post,
                                                             .instance = "i"};
    struct ledger_settings settings = {.unit_mib = 1};
    rig_start(&rig, &settings, false);
    deliver_nodes();
    counters = counters_new();
    recorder = event_recorder_start(&recording);
    verbs = verbs_new(&(struct verbs_config){.driver = rig.driver,
                                             .policy = SCORE_FGD,
                                             .counters = counters,
                                             .recorder = recorder});
}

static void end(void)
{
    verbs_free(verbs);
    event_recorder_stop(recorder, INT64_MAX);
    event_recorder_free(recorder);
    counters_free(counters);
    rig_stop(&rig);
}

static const struct {
    rig_verb verb;
    bool full;
    const char *meta, *limits; /* members of metadata, and limits */
} cases[] = {
#define MEM   "\"aliyun.com/gpu-mem\":\"1500\""
#define MODEL ",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"Tesla T4, A100\"}"
    {filter_answer, false, "", MEM},
    {filter_answer, true, "", MEM},
    {filter_answer, false, "", "\"aliyun.com/gpu-mem\":\"9999\""}, /* writes an event */
    {prioritize_answer, false, "", MEM},
    {prioritize_answer, true, "", MEM},
    {filter_answer, false, MODEL, MEM},
    {prioritize_answer, false, MODEL, MEM},
    {filter_answer, false, MODEL, "\"nvidia.com/gpu\":\"1\""},
    {filter_answer, false, ",\"labels\":{\"scv/memory\":\"1500\",\"scv/clock\":\"5001\"}",
     ""},
};

/* A body with all nodes and an unknown one; `full`: as objects. New. */
static char *body_of(size_t i)
{
    bool full = cases[i].full;
    struct buf body = {0};
    buf_printf(
        &body,
        "{\"Pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\"%s},"
        "\"spec\":{\"containers\":[{\"resources\":{\"limits\":{%s}}}]}},",
        cases[i].meta, cases[i].limits);
    buf_adds(&body, full ? "\"Nodes\":{\"items\":[" : "\"NodeNames\":[");
    for (int k = 0; k <= NODES; k++) {
        buf_adds(&body, k ? "," : "");
        buf_adds(&body, full ? "{\"metadata\":{\"name\":\"" : "\"");
        add_name(&body, k);
        buf_adds(&body, full ? "\"}}" : "\"");
    }
    buf_adds(&body, full ? "]}}" : "]}");
    return buf_take(&body);
}

static void call(size_t i, const char *body)
{
    cleanup_buf struct buf reply = {0};
    ck_assert_uint_eq(rig_call(cases[i].verb, verbs, span_of(body), &reply), 200);
    ck_assert_uint_gt(reply.n, NODES * 4);
}

/* The same body again and again; then all of them by turns. */
TEST(a_call_allocates_nothing_for_a_node)
{
    char *bodies[ARRAY_LEN(cases)];
    begin();
    array_indices(k, cases) {
        bodies[k] = body_of(k);
        for (int i = 0; i < WARM_UP; i++)
            call(k, bodies[k]);
        unsigned long before = allocations;
        for (int i = 0; i < CALLS; i++)
            call(k, bodies[k]);
        ck_assert_uint_gt(allocations, before); /* the counter works */
        ck_assert_uint_le(allocations - before, CALLS * OF_THE_REPLY);
    }
    unsigned long before = allocations;
    for (size_t i = 0; i < CALLS; i++)
        call(i % ARRAY_LEN(cases), bodies[i % ARRAY_LEN(cases)]);
    ck_assert_uint_le(allocations - before, CALLS * OF_THE_REPLY);
    array_indices(k, cases)
        free(bodies[k]);
    end();
}
