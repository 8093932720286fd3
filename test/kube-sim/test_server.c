/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <poll.h>
#include <pthread.h>

#include "kube-sim/pure.h"
#include "lib/raw.h"

/* The HTTP server: behavior that needs a network. */

#define PODS "/api/v1/namespaces/default/pods"
static const char pod_body[] =
    "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":"
    "\"i\"}]}}";

struct front {
    struct api *api;
    struct sim_server *server;
    unsigned port;
};

static void start_with(struct front *f, const struct sim_server_config *config)
{
    struct err err = {0};
    struct api_config ac = {.seed = 1};
    f->api = api_new(&ac);
    f->server = sim_server_start(f->api, config, &f->port, &err);
    ck_assert_msg(f->server != NULL, "%s", err.msg);
}

static void start(struct front *f)
{
    struct sim_server_config config = {.address = "127.0.0.1"};
    start_with(f, &config);
}

static void stop(struct front *f)
{
    sim_server_stop(f->server);
    api_free(f->api);
}

/* -- requests -- */

static void send_request(struct raw *c, const char *method, const char *path,
                         const char *type, const char *accept, struct span body)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "%s %s HTTP/1.1\r\nHost: x\r\n", method, path);
    if (body.n)
        buf_printf(&text, "Content-Type: %s\r\n", type ? type : "application/json");
    if (accept)
        buf_printf(&text, "Accept: %s\r\n", accept);
    buf_printf(&text, "Content-Length: %zu\r\n\r\n", body.n);
    buf_add_span(&text, body);
    ck_assert(raw_send(c, text.p, text.n));
}

/* Sends one request on its own connection. 0: the connection was reset. */
static unsigned ask(const struct front *f, const char *method, const char *path,
                    const char *body, struct raw_reply *reply)
{
    struct raw c;
    struct raw_reply own = {0}, *r = reply ? reply : &own;
    raw_open(&c, f->port);
    send_request(&c, method, path, NULL, NULL, span_of(body));
    unsigned status = raw_read(&c, r) == RAW_OK ? r->status : 0;
    raw_close(&c);
    raw_reply_fini(&own);
    return status;
}

static bool is_there(const struct front *f, const char *path)
{
    return ask(f, "GET", path, NULL, NULL) == 200;
}

static void order(const struct front *f, const char *path, const char *body)
{
    ck_assert_msg(ask(f, "POST", path, body, NULL) == 200, "%s %s", path, body);
}

/* -- watches -- */

struct watch {
    struct raw c;
    struct raw_reply reply; /* body: unread bytes */
    bool ended, cut;
};

static unsigned watch_open(const struct front *f, struct watch *w, const char *path,
                           const char *accept)
{
    *w = (struct watch){0};
    raw_open(&w->c, f->port);
    send_request(&w->c, "GET", path, NULL, accept, (struct span){NULL, 0});
    ck_assert_int_eq(raw_read_head(&w->c, &w->reply), RAW_OK);
    return w->reply.status;
}

static void watch_close(struct watch *w)
{
    raw_close(&w->c);
    raw_reply_fini(&w->reply);
}

static bool take_line(struct watch *w, struct buf *line)
{
    struct span rest = buf_span(&w->reply.body);
    const char *end = rest.n ? memchr(rest.p, '\n', rest.n) : NULL;
    if (!end)
        return false;
    size_t n = (size_t)(end + 1 - rest.p);
    buf_add(line, rest.p, n);
    memmove(w->reply.body.p, end + 1, rest.n - n);
    w->reply.body.n -= n;
    return true;
}

/* 1: a line; 0: a timeout; -1: the watch has ended. */
static int watch_next(struct watch *w, int wait_ms, struct buf *line)
{
    while (!take_line(w, line)) {
        struct pollfd fd = {.fd = w->c.fd, .events = POLLIN};
        if (w->ended)
            return -1;
        if (!w->c.in.n && poll(&fd, 1, wait_ms) == 0)
            return 0;
        enum raw_result rc = raw_read_chunk(&w->c, &w->reply, &w->ended);
        w->cut = rc != RAW_OK;
        w->ended |= w->cut;
    }
    return 1;
}

static void expect_event(struct watch *w, const char *type)
{
    cleanup_buf struct buf line = {0};
    ck_assert_int_eq(watch_next(w, 10000, &line), 1);
    ck_assert_msg(strstr(line.p, type) != NULL, "%s", line.p);
}

/* -- watches over a network -- */

START_TEST(watches_can_be_cut_ended_and_stalled)
{
    struct front f;
    struct watch pods, nodes;
    cleanup_buf struct buf line = {0};
    start(&f);
    watch_open(&f, &pods, "/api/v1/pods?watch=1", NULL);
    watch_open(&f, &nodes, "/api/v1/nodes?watch=1", NULL);
    order(&f, "/kube-sim/watches", "{\"action\":\"stall\",\"resource\":\"pods\"}");
    ck_assert_uint_eq(ask(&f, "POST", PODS, pod_body, NULL), 201);
    ck_assert_uint_eq(
        ask(&f, "POST", "/api/v1/nodes", "{\"metadata\":{\"name\":\"n\"}}", NULL), 201);
    expect_event(&nodes, "ADDED");
    ck_assert_int_eq(watch_next(&pods, 20, &line), 0);
    order(&f, "/kube-sim/watches", "{\"action\":\"release\"}");
    expect_event(&pods, "ADDED");
    order(&f, "/kube-sim/watches", "{\"action\":\"cut\",\"resource\":\"pods\"}");
    ck_assert_int_eq(watch_next(&pods, 10000, &line), -1);
    ck_assert(pods.cut);
    order(&f, "/kube-sim/watches", "{\"action\":\"end\"}");
    ck_assert_int_eq(watch_next(&nodes, 10000, &line), -1);
    ck_assert(!nodes.cut);
    watch_close(&pods);
    watch_close(&nodes);
    stop(&f);
}

/* -- faults -- */

static void add_fault(const struct front *f, const char *rule)
{
    ck_assert_uint_eq(ask(f, "DELETE", "/kube-sim/faults", NULL, NULL), 200);
    order(f, "/kube-sim/faults", rule);
}

START_TEST(a_reply_can_be_lost_before_and_after_the_change)
{
    static const struct {
        const char *action;
        unsigned status; /* 0: cut */
        bool applied;
    } cases[] = {{"cut", 0, false},      {"apply-cut", 0, true},
                 {"answer", 503, false}, {"apply-answer", 503, true},
                 {"hang-cut", 0, false}, {"hang", 201, true}};
    struct front f;
    start(&f);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char rule[256];
        snprintf(
            rule, sizeof rule,
            "{\"verb\":\"create\",\"resource\":\"pods\",\"times\":1,\"action\":\"%s\","
            "\"status\":503,\"hangMs\":50}",
            cases[i].action);
        add_fault(&f, rule);
        ck_assert_msg(ask(&f, "POST", PODS, pod_body, NULL) == cases[i].status, "%s",
                      cases[i].action);
        ck_assert_msg(is_there(&f, PODS "/p") == cases[i].applied, "%s", cases[i].action);
        ask(&f, "DELETE", PODS "/p", NULL, NULL);
    }
    ck_assert_uint_eq(ask(&f, "POST", PODS, pod_body, NULL), 201);
    stop(&f);
}

START_TEST(a_request_that_times_out_is_not_executed)
{
    struct front f;
    struct raw_reply reply = {0};
    start(&f);
    add_fault(&f, "{\"verb\":\"create\",\"action\":\"hang\",\"hangMs\":60000}");
    int64_t before = lib_now_ms();
    ck_assert_uint_eq(ask(&f, "POST", PODS "?timeout=200ms", pod_body, &reply), 504);
    ck_assert_int_ge(lib_now_ms() - before, 199);
    ck_assert(span_starts(buf_span(&reply.body),
                          SPAN("{\"metadata\":{},\"status\":\"Failure\",")));
    ck_assert_span_eq(raw_header(&reply, "Content-Type"), "text/plain; charset=utf-8");
    raw_reply_fini(&reply);
    ck_assert(!is_there(&f, PODS "/p"));
    add_fault(
        &f,
        "{\"verb\":\"create\",\"action\":\"hang\"}"); /* until the request times out */
    ck_assert_uint_eq(ask(&f, "POST", PODS "?timeout=100ms", pod_body, NULL), 504);
    ck_assert(!is_there(&f, PODS "/p"));
    stop(&f);
}

START_TEST(the_control_paths_refuse_invalid_requests)
{
    struct front f;
    start(&f);
    ck_assert_uint_eq(ask(&f, "POST", "/kube-sim/faults", "{", NULL), 400);
    ck_assert_uint_eq(ask(&f, "POST", "/kube-sim/faults", "{}", NULL), 400);
    ck_assert_uint_eq(ask(&f, "POST", "/kube-sim/watches", "{}", NULL), 400);
    ck_assert_uint_eq(ask(&f, "POST", "/kube-sim/watches",
                          "{\"action\":\"cut\",\"resource\":\"unicorns\"}", NULL),
                      404);
    ck_assert_uint_eq(ask(&f, "GET", "/kube-sim/compact", NULL, NULL), 405);
    ck_assert_uint_eq(ask(&f, "GET", "/kube-sim/none", NULL, NULL), 404);
    ck_assert_uint_eq(ask(&f, "POST", "/kube-sim/load", "{\"kind\":\"X\"}", NULL), 404);
    stop(&f);
}

/* -- size, time, credentials -- */

START_TEST(stopping_ends_watches_and_hanging_requests)
{
    struct front f;
    struct watch w;
    struct raw hanging;
    cleanup_buf struct buf line = {0};
    start(&f);
    add_fault(&f, "{\"verb\":\"get\",\"action\":\"hang\"}");
    watch_open(&f, &w, "/api/v1/pods?watch=1", NULL);
    raw_open(&hanging, f.port);
    send_request(&hanging, "GET", "/api/v1/nodes/n", NULL, NULL, (struct span){NULL, 0});
    /* The request hangs after it has been counted. */
    for (bool counted = false; !counted;) {
        struct raw_reply reply = {0};
        ask(&f, "GET", "/kube-sim/counters", NULL, &reply);
        counted = strstr(reply.body.p, "\"verb\":\"get\"");
        raw_reply_fini(&reply);
    }
    int64_t before = lib_now_ms();
    stop(&f);
    ck_assert_int_lt(lib_now_ms() - before, 10000 * LIB_SLOWER);
    ck_assert_int_eq(watch_next(&w, 10000, &line), -1);
    watch_close(&w);
    raw_close(&hanging);
}

/* -- concurrency -- */

enum { WRITERS = 4, READERS = 8, WRITES = 60 };

struct worker {
    const struct front *f;
    int index;
    pthread_t thread;
    int events; /* of a reader */
};

static void *write_some(void *ctx)
{
    struct worker *k = ctx;
    for (int i = 0; i < WRITES; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"metadata\":{\"name\":\"c-%d-%d\"}}", k->index, i);
        ck_assert_uint_eq(
            ask(k->f, "POST", "/api/v1/namespaces/default/configmaps", body, NULL), 201);
        ck_assert_uint_eq(ask(k->f, "GET", "/api/v1/configmaps", NULL, NULL), 200);
    }
    return NULL;
}

static void *read_all(void *ctx)
{
    struct worker *k = ctx;
    struct watch w;
    watch_open(k->f, &w, "/api/v1/configmaps?watch=1&resourceVersion=4", NULL);
    while (k->events < WRITERS * WRITES) {
        cleanup_buf struct buf line = {0};
        ck_assert_int_eq(watch_next(&w, 20000, &line), 1);
        ck_assert_ptr_nonnull(strstr(line.p, "ADDED"));
        k->events++;
    }
    watch_close(&w);
    return NULL;
}

START_TEST(concurrent_writers_and_watchers_lose_no_event)
{
    struct front f;
    struct worker workers[WRITERS + READERS];
    start(&f);
    for (int i = 0; i < WRITERS + READERS; i++) {
        workers[i] = (struct worker){.f = &f, .index = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL,
                                        i < WRITERS ? write_some : read_all, &workers[i]),
                         0);
    }
    for (int i = 0; i < WRITERS + READERS; i++)
        pthread_join(workers[i].thread, NULL);
    sim_server_tick(f.server, 1);
    stop(&f);
}

UNIT_MAIN_SECONDS("server", 120, watches_can_be_cut_ended_and_stalled,
                  a_reply_can_be_lost_before_and_after_the_change,
                  a_request_that_times_out_is_not_executed,
                  the_control_paths_refuse_invalid_requests,
                  stopping_ends_watches_and_hanging_requests,
                  concurrent_writers_and_watchers_lose_no_event)
