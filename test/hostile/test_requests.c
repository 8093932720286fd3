/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/raw.h"
#include "lib/world.h"

/*
 * Malformed and malicious HTTP requests, and what a web page could send. Each is rejected
 * with a message that says what is wrong and where, and other clients are served as before.
 */

#define JSON "Content-Type: application/json\r\n"
#define HOST "Host: localhost\r\n" JSON
/* Of the pod p, with these headers. */
#define BIND(headers)                                                                    \
    "POST /bind HTTP/1.1\r\nHost: 127.0.0.1:12345\r\nContent-Length: 69\r\n" headers     \
    "\r\n{\"PodName\":\"p\",\"PodNamespace\":\"default\",\"PodUID\":\"uid-p\",\"Node\":" \
    "\"n1\"}"
#define FILTER "POST /filter HTTP/1.1\r\n" HOST

static struct world w;
static struct raw good; /* a well-behaved client that keeps its connection */

static void begin(const char *const *more)
{
    sim_start(&w.sim, ARGV(NULL));
    sim_add_node(&w.sim, "n1", 2, 16);
    extender_start(&w.extender, &w.sim, more);
    raw_open(&good, w.extender.verbs.port);
}

/* A well-behaved client is still served. */
static void check_served(void)
{
    cleanup_buf struct buf body = {0}, request = {0};
    struct raw_reply r = {0};
    lib_filter_body(&body, "p", 4, ARGV("n1"));
    buf_printf(&request, FILTER "Content-Length: %zu\r\n\r\n%s", body.n, body.p);
    raw_call(&good, &r, request.p);
    ck_assert_uint_eq(r.status, 200);
    ck_assert_contains(r.body.p, "\"NodeNames\":[\"n1\"]");
    raw_reply_fini(&r);
    ck_assert(extender_ready(&w.extender));
}

static void end(void)
{
    check_served();
    raw_close(&good);
    oracle_agrees(&w.sim.api, &w.extender);
    world_stop(&w);
}

/* On a connection of its own. */
static enum raw_result send_bytes(const char *p, size_t n, struct raw_reply *r)
{
    struct raw c;
    raw_open(&c, w.extender.verbs.port);
    raw_send(&c, p, n);
    enum raw_result rc = raw_read(&c, r);
    raw_close(&c);
    return rc;
}

/* -- HTTP -- */

static const struct {
    const char *name, *request;
    unsigned status; /* 0: the connection is closed without a reply */
} requests[] = {
    {"garbage", "\x01\xff\xfegarbage\r\n\r\n", 0},
    {"TLS", "\x16\x03\x01\x02\x01\x01\x01\x01\xfc\x03\x03\r\n\r\n", 0},
    {"unknown version", "GET /version HTTP/9.9\r\n" HOST "\r\n", 505},
    {"no target", "GET nothing HTTP/1.1\r\n" HOST "\r\n", 400},
    {"NUL in the path", "GET /inspect/%00 HTTP/1.1\r\n" HOST "\r\n", 400},
    {"malformed escape", "GET /inspect/%zz HTTP/1.1\r\n" HOST "\r\n", 400},
    {"unknown path", "GET /nothing HTTP/1.1\r\n" HOST "\r\n", 404},
    {"unknown verb",
     "POST /gpushare-scheduler/reclaim HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}",
     404},
    {"path traversal", "GET /inspect/../../etc/passwd HTTP/1.1\r\n" HOST "\r\n", 404},
    {"GET of a verb", "GET /filter HTTP/1.1\r\n" HOST "\r\n", 405},
    {"PUT of a verb", "PUT /bind HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}", 405},
    {"POST of inspect", "POST /inspect HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}",
     405},
    {"unknown method", "BREW /bind HTTP/1.1\r\n" HOST "\r\n", 405},
    {"folded header", "GET /version HTTP/1.1\r\n" HOST " and: on\r\n\r\n", 400},
    {"space before the colon", "GET /version HTTP/1.1\r\nHost : x\r\n\r\n", 400},
    {"two lengths", FILTER "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", 400},
    {"negative length", FILTER "Content-Length: -1\r\n\r\n", 400},
    {"length is no number", FILTER "Content-Length: abc\r\n\r\n", 400},
    {"length and chunks",
     FILTER "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {"unknown transfer coding", FILTER "Transfer-Encoding: gzip\r\n\r\n", 400},
    {"broken chunk", FILTER "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400},
    {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    {"CONNECT", "CONNECT x:1 HTTP/1.1\r\n" HOST "\r\n", 400},
    {"space before the colon of a coding",
     FILTER "Transfer-Encoding : chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
    {"two transfer codings",
     FILTER "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
     400},
    {"negative chunk", FILTER "Transfer-Encoding: chunked\r\n\r\n-1\r\n{}", 400},
    {"length with a sign", FILTER "Content-Length: +2\r\n\r\n{}", 400},
    /* What a page of another origin could send without asking first. */
    {"no type", BIND(""), 415},
    {"text", BIND("Content-Type: text/plain\r\n"), 415},
    {"a form", BIND("Content-Type: application/x-www-form-urlencoded\r\n"), 415},
    {"JSON as a parameter", BIND("Content-Type: text/plain; application/json\r\n"), 415},
    {"JSONP", BIND("Content-Type: application/jsonp\r\n"), 415},
    {"other origin", BIND(JSON "Origin: http://evil.example\r\n"), 403},
    {"opaque origin", BIND(JSON "Origin: null\r\n"), 403},
    {"origin without the port", BIND(JSON "Origin: http://127.0.0.1\r\n"), 403},
    {"origin with another port", BIND(JSON "Origin: http://127.0.0.1:99999\r\n"), 403},
    {"empty origin", BIND(JSON "Origin: http://\r\n"), 403},
    /* What a page could send whose name resolves to 127.0.0.1 (DNS rebinding). */
    {"a page's bind",
     "POST /bind HTTP/1.1\r\nHost: evil.example:12345\r\n" JSON
     "Origin: http://evil.example:12345\r\nContent-Length: 2\r\n\r\n{}",
     403},
    {"a page's view", "GET /inspect HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
    {"like localhost", "GET /inspect HTTP/1.1\r\nHost: localhost.evil\r\n\r\n", 403},
    {"like an address", "GET / HTTP/1.1\r\nHost: 127.0.0.1.evil:80\r\n\r\n", 403},
    {"another address", "GET /metrics HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", 403},
    {"no Host", "GET /inspect HTTP/1.0\r\n\r\n", 403},
    {"empty Host", "GET /inspect HTTP/1.1\r\nHost:\r\n\r\n", 403},
    {"IPv6 address", "GET /inspect/no HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 404},
    {"127.0.0.0/8", "GET /inspect/no HTTP/1.1\r\nHost: 127.9.9.9\r\n\r\n", 404},
    {"a name in urlPrefix",
     "POST /filter HTTP/1.1\r\nHost: gpushare\r\n" JSON "Content-Length: 2\r\n\r\n{}",
     400},
    {"a probe's Host", "POST /readyz HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", 405},
    {"unknown expectation", FILTER "Content-Length: 2\r\nExpect: tea\r\n\r\n{}", 400},
    {"no body", FILTER "\r\n", 400},
    {"length too small", FILTER "Content-Length: 5\r\n\r\n{\"Pod\":{}}", 400},
    {"length out of range", FILTER "Content-Length: 99999999999999999999999999\r\n\r\n",
     413},
    {"length too large", FILTER "Content-Length: 1000000000000000\r\n\r\n", 413},
};

TEST(malformed_requests_are_rejected)
{
    static const char own[] = BIND("content-type: Application/JSON ; charset=utf-8\r\n"
                                   "Origin: http://127.0.0.1:12345\r\n");
    struct raw_reply bound = {0};
    begin(ARGV("--filter-answer=all"));
    lib_wait(extender_leads(&w.extender));
    sim_add_pod(&w.sim, "p", 2);
    array_items(c, requests) {
        struct raw_reply r = {0};
        const char *name = c->name, *text = c->request;
        enum raw_result rc = send_bytes(text, strlen(text), &r);
        ck_assert_msg(r.status == c->status, "%s: %u %s", name, r.status,
                      r.body.p ? r.body.p : "");
        ck_assert_msg(rc == (r.status ? RAW_OK : RAW_CLOSED), "%s: it stays open", name);
        ck_assert_msg(!r.status || r.body.n > 0, "%s: reply without a body", name);
        ck_assert_msg(r.status != 405 || raw_header(&r, "Allow").n > 0, "%s: no Allow",
                      name);
        raw_reply_fini(&r);
        check_served();
    }
    ck_assert_int_eq(sim_bound(&w.sim), 0);
    send_bytes(own, sizeof own - 1, &bound);
    ck_assert_uint_eq(bound.status, 200);
    ck_assert_int_eq(sim_bound(&w.sim), 1);
    raw_reply_fini(&bound);
    end();
}

TEST(oversized_headers_and_bodies_are_rejected)
{
    static const struct {
        const char *start, *piece;
        int n;
        const char *end;
        unsigned status;
    } cases[] = {
        {"GET /version HTTP/1.1\r\n" HOST "A: ", "b", 200000, "\r\n\r\n", 431},
        {"GET /version HTTP/1.1\r\n" HOST, "A: b\r\n", 9000, "\r\n", 431},
        {"GET /", "x", 100000, " HTTP/1.1\r\n" HOST "\r\n", 414},
        {FILTER "Content-Length: 8193\r\n\r\n", " ", 8193, "", 413},
        /* The size of a chunked body is not known in advance. */
        {FILTER "Transfer-Encoding: chunked\r\n\r\n", "8\r\n        \r\n", 1100,
         "0\r\n\r\n", 413},
        /* within the limit, but not JSON */
        {FILTER "Content-Length: 8192\r\n\r\n", " ", 8192, "", 400},
    };
    begin(ARGV("--body-limit", "8Ki"));
    array_items(c, cases) {
        struct raw_reply r = {0};
        cleanup_buf struct buf request = {0};
        buf_adds(&request, c->start);
        for (int k = 0; k < c->n; k++)
            buf_adds(&request, c->piece);
        buf_adds(&request, c->end);
        send_bytes(request.p, request.n, &r);
        ck_assert_msg(r.status == c->status, "%s: %u", c->start, r.status);
        raw_reply_fini(&r);
        check_served();
    }
    end();
}

TEST(expect_continue_is_supported)
{
    struct raw c;
    struct raw_reply r = {0};
    cleanup_buf struct buf body = {0};
    begin(ARGV(NULL));
    lib_filter_body(&body, "p", 4, ARGV("n1"));
    raw_open(&c, w.extender.verbs.port);
    raw_sendf(&c, FILTER "Expect: 100-continue\r\nContent-Length: %zu\r\n\r\n", body.n);
    ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
    ck_assert_uint_eq(r.status, 100);
    raw_send(&c, body.p, body.n);
    ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
    ck_assert_uint_eq(r.status, 200);
    raw_reply_fini(&r);
    raw_close(&c);
    end();
}

TEST(bind_completes_when_its_client_disconnects)
{
    enum { ABORTS = 6 };
    char pod[16];
    cleanup_buf struct buf why = {0};
    /* Otherwise check_served leaves a reservation. */
    begin(ARGV("--filter-answer=all"));
    sim_fault(&w.sim, "{\"subresource\":\"binding\",\"action\":\"hang\",\"hangMs\":300}");
    for (int i = 0; i < ABORTS; i++) {
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
    check_served();
    lib_wait(sim_bound(&w.sim) == ABORTS);
    oracle_agrees(&w.sim.api, &w.extender);
    /* 24 of 32 units are promised; two cards of 16 hold six pods of 4. */
    ck_assert_int_eq(extender_filter(&w.extender, 8, "n1", &why), FITS);
    ck_assert_int_eq(extender_filter(&w.extender, 9, "n1", &why), NOT_NOW);
    end();
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
    {"/filter", ARGS("\"p\"", "{}", "[]"),
     "resources.limits.aliyun.com/gpu-mem: expected a string"},
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

static void expect(const char *path, const char *body, unsigned expected,
                   const char *text)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(&w.extender.verbs, "POST", path, body, &reply);
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, JSON_ALLOW_NUL, NULL);
    ck_assert_msg(status == expected && j, "%s %.200s: %u %s", path, body, status,
                  reply.p);
    ck_assert_msg(strstr(expected == 400 ? lib_str(j, "Error") : reply.p, text),
                  "%s %.200s: %s, not \"%s\"", path, body, reply.p, text);
}

TEST(invalid_json_is_rejected_with_cause_and_position)
{
    static const char *const pieces[] = {"[", "{\"a\":", "{\"Pod\":", "[{\"a\":[",
                                         "{\"Pod\":{\"spec\":"},
                             *const paths[] = {"/filter", "/prioritize", "/bind"};
    begin(ARGV(NULL));
    array_items(c, bad)
        expect(c->path, c->body, 400, c->error);
    check_served();
    /* A valid body, truncated at various bytes. */
    cleanup_buf struct buf whole = {0};
    lib_filter_body(&whole, "p", 4, ARGV("n1"));
    for (size_t n = 0; n < whole.n; n += 1 + n / 16) {
        cleanup_free char *part = xmemdup0(whole.p, n);
        expect("/filter", part, 400, "invalid JSON at byte");
    }
    /* Nested as deeply as fits. */
    array_items(piece, pieces) {
        cleanup_buf struct buf body = {0};
        for (int k = 0; k < 100000; k++)
            buf_adds(&body, *piece);
        array_indices(p, paths)
            expect(paths[p], body.p, 400, "");
    }
    end();
}

/* As in Go's decoder, the last of two equal keys counts. An invalid number in a request
 * is a reason to reject the node, not an error. */
TEST(unusual_but_valid_json_is_accepted)
{
    static const struct {
        const char *body, *text;
    } unusual[] = {
        {ARGS("\"p\"", "\"4\"", "[\"a\"],\"NodeNames\":[\"n1\"]"),
         "\"NodeNames\":[\"n1\"]"},
        {ARGS("\"p\"", "\"99999999999999999999\"", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "99999999999999999999", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "1e400", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "-1", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "\"1.5\"", "[\"n1\"]"), "is not a whole number"},
        {ARGS("\"p\"", "\"9000000000000000000\"", "[\"n1\"]"), "\"n1\":\""},
    };
    begin(ARGV(NULL));
    array_items(u, unusual)
        expect("/filter", u->body, 200, u->text);
    end();
}

LIB_MAIN(150)
