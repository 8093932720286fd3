/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/raw.h"
#include "lib/sim.h"

/*
 * What nobody in his right mind sends over HTTP. Each is refused with words that say what
 * and where, and others are served as if nothing had been.
 */

#define HOST "Host: x\r\n"

struct world {
    struct sim sim;
    struct extender extender;
    struct raw good; /* a well-behaved client that keeps its connection */
};

static void world_begin(struct world *w, const char *const *more)
{
    sim_start(&w->sim, ARGV(NULL));
    sim_add_node(&w->sim, "n1", 2, 16);
    extender_start(&w->extender, &w->sim, more);
    raw_open(&w->good, w->extender.verbs.port);
}

/* The others are served. */
static void check_served(struct world *w)
{
    cleanup_buf struct buf body = {0}, request = {0};
    struct raw_reply r = {0};
    lib_filter_body(&body, "p", 4, ARGV("n1"));
    buf_printf(&request, "POST /filter HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n%s",
               body.n, body.p);
    raw_call(&w->good, &r, request.p);
    ck_assert_uint_eq(r.status, 200);
    ck_assert_contains(r.body.p, "\"NodeNames\":[\"n1\"]");
    raw_reply_fini(&r);
    ck_assert(extender_ready(&w->extender));
}

static void world_end(struct world *w)
{
    check_served(w);
    raw_close(&w->good);
    oracle_agrees(&w->sim.api, &w->extender);
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

/* -- HTTP -- */

static const struct {
    const char *name, *request;
    unsigned status; /* 0: the connection is closed without a word */
} requests[] = {
    {"garbage", "\x01\xff\xfegarbage\r\n\r\n", 0},
    {"TLS", "\x16\x03\x01\x02\x01\x01\x01\x01\xfc\x03\x03\r\n\r\n", 0},
    {"unknown version", "GET /version HTTP/9.9\r\n" HOST "\r\n", 505},
    {"no target", "GET nothing HTTP/1.1\r\n" HOST "\r\n", 400},
    {"NUL in the path", "GET /inspect/%00 HTTP/1.1\r\n" HOST "\r\n", 400},
    {"bad escape", "GET /inspect/%zz HTTP/1.1\r\n" HOST "\r\n", 400},
    {"unknown path", "GET /nothing HTTP/1.1\r\n" HOST "\r\n", 404},
    {"unknown verb",
     "POST /gpushare-scheduler/reclaim HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}",
     404},
    {"climbing path", "GET /inspect/../../etc/passwd HTTP/1.1\r\n" HOST "\r\n", 404},
    {"GET of a verb", "GET /filter HTTP/1.1\r\n" HOST "\r\n", 405},
    {"PUT of a verb", "PUT /bind HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}", 405},
    {"POST to observe", "POST /inspect HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}",
     405},
    {"made-up method", "BREW /bind HTTP/1.1\r\n" HOST "\r\n", 405},
    {"folded header", "GET /version HTTP/1.1\r\n" HOST " and: on\r\n\r\n", 400},
    {"space before the colon", "GET /version HTTP/1.1\r\nHost : x\r\n\r\n", 400},
    {"two lengths",
     "POST /filter HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
     400},
    {"negative length", "POST /filter HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n",
     400},
    {"no number", "POST /filter HTTP/1.1\r\n" HOST "Content-Length: abc\r\n\r\n", 400},
    {"length and chunks",
     "POST /filter HTTP/1.1\r\n" HOST
     "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     400},
    {"unknown coding", "POST /filter HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n",
     400},
    {"broken chunk",
     "POST /filter HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
     400},
    {"unknown expectation",
     "POST /filter HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: tea\r\n\r\n{}", 400},
    {"no body", "POST /filter HTTP/1.1\r\n" HOST "\r\n", 400},
    {"length too small",
     "POST /filter HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n{\"Pod\":{}}", 400},
    {"length out of range",
     "POST /filter HTTP/1.1\r\n" HOST
     "Content-Length: 99999999999999999999999999\r\n\r\n",
     413},
    {"length too large",
     "POST /filter HTTP/1.1\r\n" HOST "Content-Length: 1000000000000000\r\n\r\n", 413},
};

START_TEST(broken_requests_are_refused)
{
    struct world w;
    world_begin(&w, ARGV(NULL));
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct raw c;
        struct raw_reply r = {0};
        raw_open(&c, w.extender.verbs.port);
        raw_send(&c, requests[i].request, strlen(requests[i].request));
        enum raw_result rc = raw_read(&c, &r);
        ck_assert_msg(r.status == requests[i].status, "%s: %u %s", requests[i].name,
                      r.status, r.body.p ? r.body.p : "");
        if (requests[i].status)
            ck_assert_msg(rc == RAW_OK && r.body.n > 0, "%s: says nothing",
                          requests[i].name);
        else
            ck_assert_msg(rc == RAW_CLOSED, "%s: is kept", requests[i].name);
        if (r.status == 405)
            ck_assert_msg(raw_header(&r, "Allow").n > 0, "%s: no Allow",
                          requests[i].name);
        raw_reply_fini(&r);
        raw_close(&c);
        check_served(&w);
    }
    world_end(&w);
}

static unsigned send_large(const struct world *w, const char *start, const char *piece,
                           size_t n, const char *end)
{
    struct raw c;
    struct raw_reply r = {0};
    cleanup_buf struct buf request = {0};
    buf_adds(&request, start);
    for (size_t i = 0; i < n; i++)
        buf_adds(&request, piece);
    buf_adds(&request, end);
    raw_open(&c, w->extender.verbs.port);
    raw_send(&c, request.p, request.n);
    raw_read(&c, &r);
    unsigned status = r.status;
    raw_reply_fini(&r);
    raw_close(&c);
    return status;
}

START_TEST(large_heads_and_bodies_are_refused)
{
    struct world w;
    world_begin(&w, ARGV("--body-limit", "8Ki"));
    ck_assert_uint_eq(
        send_large(&w, "GET /version HTTP/1.1\r\n" HOST "A: ", "b", 200000, "\r\n\r\n"),
        431);
    check_served(&w);
    ck_assert_uint_eq(
        send_large(&w, "GET /version HTTP/1.1\r\n" HOST, "A: b\r\n", 9000, "\r\n"), 431);
    check_served(&w);
    ck_assert_uint_eq(send_large(&w, "GET /", "x", 100000, " HTTP/1.1\r\n" HOST "\r\n"),
                      414);
    check_served(&w);
    ck_assert_uint_eq(
        send_large(&w, "POST /filter HTTP/1.1\r\n" HOST "Content-Length: 8193\r\n\r\n",
                   " ", 8193, ""),
        413);
    check_served(&w);
    /* Of chunks nobody knows before how much they are. */
    ck_assert_uint_eq(send_large(&w,
                                 "POST /filter HTTP/1.1\r\n" HOST
                                 "Transfer-Encoding: chunked\r\n\r\n",
                                 "8\r\n        \r\n", 1100, "0\r\n\r\n"),
                      413);
    check_served(&w);
    ck_assert_uint_eq(
        send_large(&w, "POST /filter HTTP/1.1\r\n" HOST "Content-Length: 8192\r\n\r\n",
                   " ", 8192, ""),
        400); /* just within, and nonsense */
    world_end(&w);
}

START_TEST(chunks_and_expectations_are_understood)
{
    struct world w;
    struct raw c;
    struct raw_reply r = {0};
    cleanup_buf struct buf body = {0};
    world_begin(&w, ARGV(NULL));
    lib_filter_body(&body, "p", 4, ARGV("n1"));
    raw_open(&c, w.extender.verbs.port);
    raw_sendf(&c,
              "POST /filter HTTP/1.1\r\n" HOST
              "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\n%.5s\r\n%zx\r\n%s\r\n"
              "0\r\nTrailer: t\r\n\r\n",
              body.p, body.n - 5, body.p + 5);
    ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
    ck_assert_uint_eq(r.status, 200);
    ck_assert_contains(r.body.p, "\"NodeNames\":[\"n1\"]");
    raw_sendf(&c,
              "POST /filter HTTP/1.1\r\n" HOST
              "Expect: 100-continue\r\nContent-Length: %zu\r\n\r\n",
              body.n);
    ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
    ck_assert_uint_eq(r.status, 100);
    raw_send(&c, body.p, body.n);
    ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
    ck_assert_uint_eq(r.status, 200);
    raw_reply_fini(&r);
    raw_close(&c);
    world_end(&w);
}

/* Ten seconds, however busy the client is; all at once, so that it is waited for once. */
START_TEST(slow_clients_are_cut_off)
{
    static const char *const halves[] = {
        "", "GET /vers", "GET /version HTTP/1.1\r\nHost",
        "POST /bind HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\n{\"PodName\":",
        "POST /filter HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"P"};
    struct world w;
    struct raw c[ARRAY_LEN(halves)];
    world_begin(&w, ARGV("--connections", "6")); /* one is left: the good one's */
    int64_t start = lib_now_ms();
    for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
        raw_open(&c[i], w.extender.verbs.port);
        raw_send(&c[i], halves[i], strlen(halves[i]));
    }
    /* One more has to wait for its turn, but gets it. */
    struct raw late;
    struct raw_reply r = {0};
    raw_open(&late, w.extender.verbs.port);
    raw_sendf(&late, "GET /version HTTP/1.1\r\n" HOST "\r\n");
    for (int k = 0; k < 8; k++) {
        raw_send(&c[2], ": ", 2); /* busy */
        raw_send(&c[3], " ", 1);
        check_served(&w);
        for (int i = 0; i < 100; i++)
            lib_pause();
    }
    ck_assert_int_eq(raw_read(&late, &r), RAW_OK);
    ck_assert_uint_eq(r.status, 200);
    raw_reply_fini(&r);
    raw_close(&late);
    for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
        cleanup_buf struct buf rest = {0};
        ck_assert_msg(raw_read_all(&c[i], &rest) == RAW_OK, "%s: is kept", halves[i]);
        raw_close(&c[i]);
    }
    ck_assert_int_ge(lib_now_ms() - start, 9000);
    ck_assert_int_le(lib_now_ms() - start, 15000 * LIB_SLOWER);
    world_end(&w);
}

static bool has_node(const struct sim *s, const char *pod)
{
    cleanup_free char *path = xasprintf("/api/v1/namespaces/default/pods/%s", pod);
    cleanup_json json_t *j = peer_json(&s->api, "GET", path, NULL);
    return *lib_str(j, "spec.nodeName");
}

START_TEST(a_client_that_leaves_in_a_bind_changes_nothing)
{
    enum { LEAVERS = 6 };
    struct world w;
    char pod[16];
    cleanup_buf struct buf why = {0};
    world_begin(&w, ARGV(NULL));
    sim_fault(&w.sim, "{\"subresource\":\"binding\",\"action\":\"hang\",\"hangMs\":300}");
    for (int i = 0; i < LEAVERS; i++) {
        struct raw c;
        cleanup_buf struct buf body = {0};
        snprintf(pod, sizeof pod, "p%d", i);
        sim_add_pod(&w.sim, pod, 4);
        lib_bind_body(&body, pod, "n1");
        raw_open(&c, w.extender.verbs.port);
        raw_sendf(&c, "POST /bind HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n%s",
                  body.n, body.p);
        lib_wait(sim_count(&w.sim, "create", "pods", "binding") > i);
        if (i % 2)
            raw_reset(&c);
        else
            raw_close(&c);
    }
    check_served(&w);
    for (int i = 0; i < LEAVERS; i++) {
        snprintf(pod, sizeof pod, "p%d", i);
        lib_wait(has_node(&w.sim, pod));
    }
    oracle_agrees(&w.sim.api, &w.extender);
    /* 24 of 32 units are promised; two cards of 16 hold six pods of 4. */
    ck_assert_int_eq(extender_filter(&w.extender, 8, "n1", &why), FITS);
    ck_assert_int_eq(extender_filter(&w.extender, 9, "n1", &why), NOT_NOW);
    world_end(&w);
}

/* -- JSON -- */

#define CONTAINER(units)                                                                 \
    "{\"name\":\"c\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":" units "}}}"
#define ARGS(name, units, nodes)                                                         \
    "{\"Pod\":{\"metadata\":{\"name\":" name ",\"uid\":\"u\"},\"spec\":{\"containers\":" \
    "[" CONTAINER(units) "]}},\"NodeNames\":" nodes "}"

static const struct {
    const char *path, *body, *error;
} bad[] = {
    {"/filter", "", "invalid JSON at byte 0: unexpected end of input"},
    {"/prioritize", "", "invalid JSON at byte 0"},
    {"/bind", "", "invalid JSON at byte 0"},
    {"/filter", "{\"Pod\":", "invalid JSON at byte 7: unexpected end of input"},
    {"/filter", "\x01", "invalid JSON at byte 0"},
    {"/filter", "null", "Pod is missing"},
    {"/filter", "[]", "expected an object, at byte 0"},
    {"/filter", "\"Pod\"", "expected an object, at byte 0"},
    {"/filter", "{}", "Pod is missing"},
    {"/filter", "{\"Pod\":7}", "pod: expected an object, at byte 7"},
    {"/filter", "{\"Pod\":{}}", "metadata.name: is missing"},
    {"/filter", "{\"NodeNames\":[1]}", "NodeNames[]: expected a string, at byte 14"},
    {"/filter", ARGS("\"p\"", "\"4\"", "\"n1\""), "NodeNames: expected an array"},
    {"/filter", ARGS("\"p\"", "\"4\"", "null"), "NodeNames and Nodes are both missing"},
    {"/filter", ARGS("\"p\"", "\"4\"", "[\"n1\",\"/\"]"),
     "NodeNames[]: is not a valid node name, at byte"},
    {"/filter", ARGS("\"p\"", "\"4\"", "[\"n\\u0000\"]"),
     "NodeNames[]: is not a valid node name, at byte"},
    {"/filter", ARGS("\"p\"", "\"4\"", "[]") "x", "unexpected data after the value"},
    {"/filter", ARGS("\"\xff\xfe\"", "\"4\"", "[]"),
     "byte 28: invalid UTF-8 in a string"},
    {"/filter", ARGS("\"p\xc0\x80\"", "\"4\"", "[]"), "invalid UTF-8 in a string"},
    {"/filter", ARGS("\"\\ud800\"", "\"4\"", "[]"), "unpaired surrogate"},
    {"/filter", ARGS("\"p\"", "{}", "[]"), "resources.limits: expected a string"},
    {"/filter", ARGS("\"p\"", "01", "[]"), "invalid JSON at byte"},
    {"/prioritize", ARGS("\"p\"", "+1", "[]"), "invalid JSON at byte"},
    {"/bind", "{}", "PodName is missing"},
    {"/bind", "{\"PodName\":7}", "PodName: expected a string, at byte 11"},
    {"/bind", "{\"PodName\":\"p\",\"PodNamespace\":\"d\",\"PodUID\":\"u\"}",
     "Node is missing"},
    {"/bind",
     "{\"PodName\":\"p/../x\",\"PodNamespace\":\"d\",\"PodUID\":\"u\",\"Node\":\"n1\"}",
     "PodName is missing or not a valid name"},
    {"/bind",
     "{\"PodName\":\"p\\u0000\",\"PodNamespace\":\"d\",\"PodUID\":\"u\",\"Node\":\"n1\"}",
     "PodName is missing or not a valid name"},
    {"/bind",
     "{\"PodName\":\"p\",\"PodNamespace\":\"d\",\"PodUID\":\"u\",\"Node\":\"n1\"",
     "unexpected end of input"},
};

static void check_bad(struct world *w, const char *path, const char *body,
                      const char *error)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(&w->extender.verbs, "POST", path, body, &reply);
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    ck_assert_msg(status == 400, "%s %.200s: %u %s", path, body, status, reply.p);
    ck_assert_msg(strstr(lib_str(j, "Error"), error), "%s %.200s: \"%s\", not \"%s\"",
                  path, body, lib_str(j, "Error"), error);
}

START_TEST(bad_json_is_refused_with_what_and_where)
{
    struct world w;
    world_begin(&w, ARGV(NULL));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check_bad(&w, bad[i].path, bad[i].body, bad[i].error);
    check_served(&w);
    /* Cut short at each byte. */
    cleanup_buf struct buf whole = {0};
    lib_filter_body(&whole, "p", 4, ARGV("n1"));
    for (size_t n = 0; n < whole.n; n += 1 + n / 16) {
        cleanup_free char *part = xmemdup0(whole.p, n);
        check_bad(&w, "/filter", part, "invalid JSON at byte");
    }
    world_end(&w);
}

START_TEST(deep_json_is_refused)
{
    static const char *const pieces[] = {"[", "{\"a\":", "{\"Pod\":", "[{\"a\":[",
                                         "{\"Pod\":{\"spec\":"};
    struct world w;
    world_begin(&w, ARGV(NULL));
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        cleanup_buf struct buf body = {0};
        for (int k = 0; k < 100000; k++)
            buf_adds(&body, pieces[i]);
        static const char *const paths[] = {"/filter", "/prioritize", "/bind"};
        for (size_t p = 0; p < ARRAY_LEN(paths); p++) {
            cleanup_buf struct buf reply = {0};
            unsigned status =
                peer_call(&w.extender.verbs, "POST", paths[p], body.p, &reply);
            ck_assert_msg(status == 400, "%s: %u %s", pieces[i], status, reply.p);
        }
    }
    world_end(&w);
}

/* As Go's decoder does it: of two keys the last one counts. Numbers that cannot be meant
 * are a reason, not an error. */
START_TEST(odd_json_is_understood)
{
    static const struct {
        const char *body, *text;
    } odd[] = {
        {ARGS("\"p\"", "\"4\"", "[\"a\"],\"NodeNames\":[\"n1\"]"),
         "\"NodeNames\":[\"n1\"]"},
        {ARGS("\"p\"", "\"99999999999999999999\"", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "99999999999999999999", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "1e400", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "-1", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "\"1.5\"", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "\"9000000000000000000\"", "[\"n1\"]"), "\"n1\":\""},
    };
    struct world w;
    world_begin(&w, ARGV(NULL));
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        cleanup_buf struct buf reply = {0};
        unsigned status =
            peer_call(&w.extender.verbs, "POST", "/filter", odd[i].body, &reply);
        ck_assert_msg(status == 200, "%s: %u %s", odd[i].body, status, reply.p);
        ck_assert_contains(reply.p, odd[i].text);
        cleanup_json json_t *j = json_loadb(reply.p, reply.n, JSON_ALLOW_NUL, NULL);
        ck_assert_msg(j != NULL, "no JSON: %s", reply.p);
    }
    world_end(&w);
}

LIB_MAIN("hostile", 150, broken_requests_are_refused, large_heads_and_bodies_are_refused,
         chunks_and_expectations_are_understood, slow_clients_are_cut_off,
         a_client_that_leaves_in_a_bind_changes_nothing,
         bad_json_is_refused_with_what_and_where, deep_json_is_refused,
         odd_json_is_understood)
