/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "extender/verb.h"
#include "kube/event_recorder.h"
#include "lib/raw.h"
#include "wire/httpd.h"

/*
 * On a warm connection, filter and prioritize allocate nothing for a node: the server takes
 * buffers for a body and its reply, and the verbs reuse theirs. (The program is linked with
 * --wrap for malloc and the like; allocations inside libmicrohttpd are measured by `make
 * bench`.)
 */

enum { NODES = 200, WARM_UP = 4, CALLS = 30, OF_THE_SERVER = 30 /* of a call */ };

/* -- counting -- */

static atomic_ulong allocations; /* by threads other than the test's */
static pthread_t tester;

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

static void note(void)
{
    if (!pthread_equal(pthread_self(), tester))
        atomic_fetch_add(&allocations, 1);
}

void *__wrap_malloc(size_t n)
{
    note();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
    note();
    return __real_calloc(count, n);
}

void *__wrap_realloc(void *p, size_t n)
{
    note();
    return __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t count, size_t n)
{
    note();
    return __real_reallocarray(p, count, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    note();
    return __real_aligned_alloc(align, n);
}

char *__wrap_strdup(const char *s)
{
    note();
    return __real_strdup(s);
}

/* -- a server with the verbs -- */

struct world {
    struct core_driver_rig rig;
    struct verbs *verbs;
    struct counters *counters;
    struct event_recorder *recorder;
    struct httpd *httpd;
    struct raw c;
};

static void on_filter(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    struct world *w = ctx;
    reply->status = rig_call(filter_answer, w->verbs, req->body, &reply->body);
    counters_verb(w->counters, COUNTERS_FILTER, reply->status, 1);
}

static void on_prioritize(void *ctx, const struct httpd_request *req,
                          struct httpd_reply *reply)
{
    struct world *w = ctx;
    reply->status = rig_call(prioritize_answer, w->verbs, req->body, &reply->body);
}

static const struct httpd_route routes[] = {
    {"POST", "/filter", on_filter}, {"POST", "/prioritize", on_prioritize}, {0}};

static void add_name(struct buf *out, int i)
{
    buf_printf(out, "%.*s%d", i % 60,
               "a-name-that-is-longer-than-most-names-of-nodes-are-", i);
}

/* Nodes that fit and nodes that do not. */
static void deliver_nodes(struct core_driver_rig *rig)
{
    json_t *objects = json_array();
    for (int i = 0; i < NODES; i++) {
        cleanup_buf struct buf name = {0};
        add_name(&name, i);
        json_array_append_new(
            objects,
            json_pack("{s:s,s:s,s:{s:s},s:{s:[{s:i,s:s,s:i,s:s,s:i}]}}", "apiVersion",
                      "core.run-linux.com/v1", "kind", "Scv", "metadata", "name", name.p,
                      "status", "cardList", "id", 0, "health",
                      i % 5 ? "Healthy" : "Unhealthy", "totalMemory", 1000 * (i % 3 + 1),
                      "model", i % 2 ? "Tesla T4" : "B\"", "clock", 5000 + i % 4));
    }
    rig_deliver(rig, objects);
    json_decref(objects);
}

static int post(void *ctx, const struct kube_request *request, struct err *err)
{
    (void)ctx;
    (void)request;
    (void)err;
    return 0;
}

static const struct event_recorder_settings recording = {.post = post, .instance = "i"};

static void begin(struct world *w)
{
    struct ledger_settings settings = {.unit_mib = 1};
    struct err err = {0};
    unsigned port;
    tester = pthread_self();
    rig_start(&w->rig, &settings, false);
    deliver_nodes(&w->rig);
    w->counters = counters_new();
    w->recorder = event_recorder_start(&recording);
    w->verbs = verbs_new(&(struct verbs_config){.driver = w->rig.driver,
                                                .policy = SCORE_FGD,
                                                .counters = w->counters,
                                                .recorder = w->recorder});
    w->httpd = httpd_new(NULL);
    struct httpd_listener_config listener = {.name = "verbs",
                                             .address = "127.0.0.1",
                                             .mode = HTTPD_THREADS,
                                             .max_body = 8 << 20,
                                             .routes = routes,
                                             .ctx = w};
    ck_assert_done(httpd_listen(w->httpd, &listener, &port, &err), err);
    raw_open(&w->c, port);
}

static void end(struct world *w)
{
    raw_close(&w->c);
    httpd_free(w->httpd);
    verbs_free(w->verbs);
    event_recorder_stop(w->recorder);
    event_recorder_free(w->recorder);
    counters_free(w->counters);
    rig_stop(&w->rig);
}

static const struct {
    const char *path;
    bool full;
    const char *meta, *limits; /* members of metadata, and limits */
} cases[] = {
#define MEM   "\"aliyun.com/gpu-mem\":\"1500\""
#define MODEL ",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"Tesla T4, A100\"}"
    {"/filter", false, "", MEM},
    {"/filter", true, "", MEM},
    {"/filter", false, "", "\"aliyun.com/gpu-mem\":\"9999\""}, /* writes an event */
    {"/prioritize", false, "", MEM},
    {"/prioritize", true, "", MEM},
    {"/filter", false, MODEL, MEM},
    {"/prioritize", false, MODEL, MEM},
    {"/filter", false, MODEL, "\"nvidia.com/gpu\":\"1\""},
    {"/filter", false, ",\"labels\":{\"scv/memory\":\"1500\",\"scv/clock\":\"5001\"}",
     ""},
};

/* A request with all nodes and an unknown one; `full`: as objects. New. */
static char *request(size_t i)
{
    const char *path = cases[i].path;
    bool full = cases[i].full;
    cleanup_buf struct buf body = {0}, text = {0};
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
    buf_printf(&text,
               "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: "
               "application/json\r\nContent-Length: %zu\r\n\r\n",
               path, body.n);
    buf_add_span(&text, buf_span(&body));
    return buf_take(&text);
}

static void call(struct world *w, const char *text)
{
    struct raw_reply reply = {0};
    raw_call(&w->c, &reply, text);
    ck_assert_uint_eq(reply.status, 200);
    ck_assert_uint_gt(reply.body.n, NODES * 4);
    raw_reply_fini(&reply);
}

START_TEST(a_call_on_a_warm_connection_allocates_nothing_for_a_node)
{
    struct world w = {0};
    cleanup_free char *text = request((size_t)_i);
    begin(&w);
    for (int i = 0; i < WARM_UP; i++)
        call(&w, text);
    unsigned long before = atomic_load(&allocations);
    ck_assert_uint_gt(before, 0); /* the counter works */
    for (int i = 0; i < CALLS; i++)
        call(&w, text);
    ck_assert_uint_le(atomic_load(&allocations) - before, CALLS * OF_THE_SERVER);
    end(&w);
}
END_TEST

/* Requests alternate between two connections. */
START_TEST(alternating_verbs_allocate_nothing_for_a_node)
{
    struct world w = {0};
    char *texts[ARRAY_LEN(cases)];
    begin(&w);
    for (size_t k = 0; k < ARRAY_LEN(cases); k++)
        texts[k] = request(k);
    for (size_t i = 0; i < WARM_UP * ARRAY_LEN(cases); i++)
        call(&w, texts[i % ARRAY_LEN(cases)]);
    unsigned long before = atomic_load(&allocations);
    for (size_t i = 0; i < CALLS; i++)
        call(&w, texts[i % ARRAY_LEN(cases)]);
    ck_assert_uint_le(atomic_load(&allocations) - before, CALLS * OF_THE_SERVER);
    for (size_t k = 0; k < ARRAY_LEN(cases); k++)
        free(texts[k]);
    end(&w);
}
END_TEST

int main(void)
{
    const struct unit_loop tests[] = {
        {a_call_on_a_warm_connection_allocates_nothing_for_a_node, (int)ARRAY_LEN(cases)},
        {alternating_verbs_allocate_nothing_for_a_node, 1}};
    return unit_run_loops("allocations", tests, ARRAY_LEN(tests), 60);
}
