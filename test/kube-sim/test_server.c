/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <poll.h>

#include "kube-sim/pure.h"
#include "lib/watch.h"

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

static void start(struct front *f)
{
    struct sim_server_config config = {.address = "127.0.0.1"};
    struct err err = {0};
    f->api = api_new(&(struct api_config){.seed = 1});
    f->server = sim_server_start(f->api, &config, &f->port, &err);
    ck_assert_msg(f->server != NULL, "%s", err.msg);
}

static void stop(struct front *f)
{
    sim_server_stop(f->server);
    api_free(f->api);
}

/* -- requests -- */

static void send_request(struct raw *c, const char *method, const char *path,
                         const char *body)
{
    ck_assert(raw_sendf(c,
                        "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\n\r\n%s",
                        method, path, strlen(body), body));
}

/* Sends one request on its own connection. 0: the connection was reset. */
static unsigned ask(const struct front *f, const char *method, const char *path,
                    const char *body, struct raw_reply *reply)
{
    struct raw c;
    struct raw_reply own = {0}, *r = reply ? reply : &own;
    raw_open(&c, f->port);
    send_request(&c, method, path, body);
    unsigned status = raw_read(&c, r) == RAW_OK ? r->status : 0;
    raw_close(&c);
    raw_reply_fini(&own);
    return status;
}

static bool is_there(const struct front *f, const char *path)
{
    return ask(f, "GET", path, "", NULL) == 200;
}

static void order(const struct front *f, const char *path, const char *body)
{
    ck_assert_msg(ask(f, "POST", path, body, NULL) == 200, "%s %s", path, body);
}

/* -- watches -- */

static void expect_event(struct watch *w, const char *type)
{
    const char *line = watch_line(w);
    ck_assert_ptr_nonnull(line);
    ck_assert_contains(line, type);
}

/* Is there no event now? */
static bool is_quiet(struct watch *w)
{
    struct pollfd fd = {.fd = w->c.fd, .events = POLLIN};
    return !w->c.in.n && !w->r.body.n && poll(&fd, 1, 20) == 0;
}

/* -- watches over a network -- */

TEST(watches_can_be_cut_ended_and_stalled)
{
    struct front f;
    struct watch pods, nodes;
    start(&f);
    watch_open(&pods, f.port, "/api/v1/pods?watch=1");
    watch_open(&nodes, f.port, "/api/v1/nodes?watch=1");
    order(&f, "/kube-sim/watches", "{\"action\":\"stall\",\"resource\":\"pods\"}");
    ck_assert_uint_eq(ask(&f, "POST", PODS, pod_body, NULL), 201);
    ck_assert_uint_eq(
        ask(&f, "POST", "/api/v1/nodes", "{\"metadata\":{\"name\":\"n\"}}", NULL), 201);
    expect_event(&nodes, "ADDED");
    ck_assert(is_quiet(&pods));
    order(&f, "/kube-sim/watches", "{\"action\":\"release\"}");
    expect_event(&pods, "ADDED");
    order(&f, "/kube-sim/watches", "{\"action\":\"cut\",\"resource\":\"pods\"}");
    ck_assert(!watch_line(&pods) && pods.cut);
    order(&f, "/kube-sim/watches", "{\"action\":\"end\"}");
    ck_assert(!watch_line(&nodes) && !nodes.cut);
    watch_close(&pods);
    watch_close(&nodes);
    stop(&f);
}

/* -- faults -- */

static void add_fault(const struct front *f, const char *rule)
{
    ck_assert_uint_eq(ask(f, "DELETE", "/kube-sim/faults", "", NULL), 200);
    order(f, "/kube-sim/faults", rule);
}

TEST(a_reply_can_be_lost_before_and_after_the_change)
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
    array_items(c, cases) {
        add_fault(&f, lib_fmt("{\"verb\":\"create\",\"resource\":\"pods\",\"times\":1,"
                              "\"action\":\"%s\",\"status\":503,\"hangMs\":50}",
                              c->action));
        ck_assert_msg(ask(&f, "POST", PODS, pod_body, NULL) == c->status, "%s",
                      c->action);
        ck_assert_msg(is_there(&f, PODS "/p") == c->applied, "%s", c->action);
        ask(&f, "DELETE", PODS "/p", "", NULL);
    }
    ck_assert_uint_eq(ask(&f, "POST", PODS, pod_body, NULL), 201);
    stop(&f);
}

TEST(a_request_that_times_out_is_not_executed)
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

TEST(the_control_paths_refuse_invalid_requests)
{
    static const struct {
        const char *method, *path, *body;
        unsigned status;
    } cases[] = {{"POST", "/kube-sim/faults", "{", 400},
                 {"POST", "/kube-sim/faults", "{}", 400},
                 {"POST", "/kube-sim/watches", "{}", 400},
                 {"POST", "/kube-sim/watches",
                  "{\"action\":\"cut\",\"resource\":\"unicorns\"}", 404},
                 {"GET", "/kube-sim/compact", "", 405},
                 {"GET", "/kube-sim/none", "", 404},
                 {"POST", "/kube-sim/load", "{\"kind\":\"X\"}", 404}};
    struct front f;
    start(&f);
    array_items(c, cases)
        ck_assert_uint_eq(ask(&f, c->method, c->path, c->body, NULL), c->status);
    stop(&f);
}

/* -- size, time, credentials -- */

TEST(stopping_ends_watches_and_hanging_requests)
{
    struct front f;
    struct watch w;
    struct raw hanging;
    start(&f);
    add_fault(&f, "{\"verb\":\"get\",\"action\":\"hang\"}");
    watch_open(&w, f.port, "/api/v1/pods?watch=1");
    raw_open(&hanging, f.port);
    send_request(&hanging, "GET", "/api/v1/nodes/n", "");
    /* The request hangs after it has been counted. */
    for (bool counted = false; !counted;) {
        struct raw_reply reply = {0};
        ask(&f, "GET", "/kube-sim/counters", "", &reply);
        counted = strstr(reply.body.p, "\"verb\":\"get\"");
        raw_reply_fini(&reply);
    }
    int64_t before = lib_now_ms();
    stop(&f);
    ck_assert_int_lt(lib_now_ms() - before, 10000 * LIB_SLOWER);
    ck_assert_ptr_null(watch_line(&w));
    watch_close(&w);
    raw_close(&hanging);
}

/* -- concurrency -- */

enum { WRITERS = 4, READERS = 8, WRITES = 60 };

static void write_some(const struct front *f, size_t writer)
{
    for (int i = 0; i < WRITES; i++) {
        ck_assert_uint_eq(
            ask(f, "POST", "/api/v1/namespaces/default/configmaps",
                lib_fmt("{\"metadata\":{\"name\":\"c-%zu-%d\"}}", writer, i), NULL),
            201);
        ck_assert(is_there(f, "/api/v1/configmaps"));
    }
}

static void work(void *ctx, size_t i)
{
    const struct front *f = ctx;
    struct watch w;
    if (i < WRITERS) {
        write_some(f, i);
        return;
    }
    watch_open(&w, f->port, "/api/v1/configmaps?watch=1&resourceVersion=4");
    for (int events = 0; events < WRITERS * WRITES; events++)
        expect_event(&w, "ADDED");
    watch_close(&w);
}

TEST(concurrent_writers_and_watchers_lose_no_event)
{
    struct front f;
    start(&f);
    lib_threads(WRITERS + READERS, work, &f);
    sim_server_tick(f.server, 1);
    stop(&f);
}

UNIT_MAIN(120)
