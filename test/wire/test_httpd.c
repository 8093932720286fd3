/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpd.h"

#include <fcntl.h>

#include "wire/httpd_fixture.h"

TEST(requests_of_a_connection_get_replies_in_order)
{
    static const struct {
        const char *request;
        unsigned status;
        const char *type, *body;
    } cases[] = {
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab", 200,
         "application/json", "ab"},
        {"GET /show?a=1 HTTP/1.1\r\nHost: x\r\n\r\n", 200, "application/json",
         "GET [/show] [a=1] [(none)]"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
         "1\r\nc\r\n1\r\nd\r\n0\r\n\r\n",
         200, "application/json", "cd"},
        {"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, "application/json",
         "{\"error\":\"path not found\"}\n"},
        {"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, "text/plain",
         "hello\n"},
    };
    FOR_BOTH_CLIENTS(NULL)
    {
        array_items(p, cases)
            raw_sendf(&c, "%s", p->request);
        array_items(x, cases) {
            ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
            ck_assert_uint_eq(r.status, x->status);
            ck_assert_span_eq(raw_header(&r, "content-type"), x->type);
            ck_assert_body(r, x->body);
        }
        ck_assert(raw_ended(&c));
    }
}

TEST(a_wrong_path_is_404_and_a_wrong_method_405_with_allow)
{
    FOR_BOTH_CLIENTS(NULL)
    {
        raw_call(&c, &r, "GET /hell HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_uint_eq(r.status, 404);
        raw_call(&c, &r, "DELETE /show HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_uint_eq(r.status, 405);
        ck_assert_body(r, "{\"error\":\"method not allowed\"}\n");
        ck_assert_span_eq(raw_header(&r, "Allow"), "GET, HEAD, PUT");
        raw_call(&c, &r, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_uint_eq(r.status, 405);
        ck_assert_span_eq(raw_header(&r, "Allow"), "POST");
        raw_call(&c, &r, "BREW /any?x HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_body(r, "BREW [/any] [x] [(none)]");
        /* A body without a handler is not read: the connection is closed. */
        raw_call(&c, &r,
                 "POST /hell HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
        ck_assert_uint_eq(r.status, 404);
        ck_assert(raw_ended(&c));
    }
}

TEST(head_is_get_without_the_body)
{
    FOR_BOTH_CLIENTS(NULL)
    {
        raw_sendf(&c, "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
        ck_assert_uint_eq(r.status, 200);
        ck_assert_span_eq(raw_header(&r, "Content-Length"), "6");
        raw_sendf(&c, "HEAD /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
        ck_assert_uint_eq(r.status, 404);
        /* The next reply starts at once: no byte of a body came. */
        raw_call(&c, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_body(r, "hello\n");
    }
}

TEST(paths_are_decoded_and_queries_are_not)
{
    static const struct {
        const char *target, *seen;
    } cases[] = {
        {"/sh%6Fw?", "GET [/show] [] [(none)]"},
        {"/pre/%41%2fb%3F%C3%a4?x=%25", "GET [/pre/A/b?\xc3\xa4] [x=%25] [(none)]"},
        {"/pre//../x", "GET [/pre//../x] [] [(none)]"},
        {"/show?a&watch=true", "GET [/show] [a&watch=true] [(none)] watch"},
        {"/show?watch=true1?watch=true", "GET [/show] [watch=true1?watch=true] [(none)]"},
    };
    FOR_BOTH_CLIENTS(NULL)
    {
        array_items(p, cases) {
            raw_sendf(&c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", p->target);
            ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
            ck_assert_body(r, p->seen);
        }
        raw_call(&c, &r, "GET /show HTTP/1.1\r\nHost: x\r\nX-TEST:  some thing\r\n\r\n");
        ck_assert_body(r, "GET [/show] [] [some thing]");
        raw_call(&c, &r, "GET /show HTTP/1.1\r\nHost: x\r\nX-Test:\r\n\r\n");
        ck_assert_body(r, "GET [/show] [] []");
    }
}

TEST(a_query_of_very_many_parameters_is_served)
{
    FOR_BOTH_SERVERS(NULL)
    {
        struct raw c;
        cleanup_buf struct buf req = {0};
        buf_adds(&req, "GET /show?");
        for (int i = 0; i < 2000; i++)
            buf_adds(&req, "b=c&");
        buf_adds(&req, "watch=true HTTP/1.1\r\nHost: x\r\n\r\n");
        raw_open(&c, kit.port);
        raw_call(&c, &r, req.p);
        ck_assert_uint_eq(r.status, 200);
        ck_assert_contains(r.body.p, "] watch");
        raw_close(&c);
    }
}

/* Rejected, and the connection is closed: the bytes after it are no request. */
static void expect_refusal(unsigned port, const char *request, size_t n)
{
    struct raw c;
    cleanup_buf struct buf all = {0};
    raw_open(&c, port);
    ck_assert(raw_send(&c, request, n));
    ck_assert_msg(raw_read_all(&c, &all) == RAW_OK, "still open after %s", request);
    ck_assert_msg(strncmp(all.p, "HTTP/1.1 400 ", 13) == 0, "%s to %s", all.p, request);
    ck_assert_msg(!strstr(all.p, "200 OK"), "%s to %s", all.p, request);
    raw_close(&c);
}

TEST(ambiguous_requests_are_rejected)
{
#define POST     "POST /echo HTTP/1.1\r\nHost: x\r\n"
#define SMUGGLED "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
    static const char *const requests[] = {
        POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
        POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" SMUGGLED,
        POST "Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello" SMUGGLED,
        POST "Content-Length: 0\r\ncontent-length: 5\r\n\r\nhello" SMUGGLED,
        POST "Content-Length : 5\r\n\r\nhello" SMUGGLED,
        POST "Content-Length: +5\r\n\r\nhello" SMUGGLED,
        POST "Content-Length: 5, 5\r\n\r\nhello" SMUGGLED,
        POST "Transfer-Encoding: gzip\r\n\r\nhello" SMUGGLED,
        POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
        POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" SMUGGLED,
        POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: "
             "chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
        POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
        "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
        POST "Expect: the unexpected\r\nContent-Length: 0\r\n\r\n" SMUGGLED,
        POST "X-(bad): 1\r\nContent-Length: 0\r\n\r\n" SMUGGLED,
        POST "X: a\rb\r\nContent-Length: 0\r\n\r\n" SMUGGLED,
        "GET /hello%00 HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "GET /hello?a=%00 HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "GET /hello% HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "GET /hello?a=%4 HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "GET hello HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "GET http://x/hello HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "GET /hel lo HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "GET /hello\t HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" SMUGGLED,
        "GET /hello HTTP/1.1\r\n\r\n" SMUGGLED,
        "GET /hello HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" SMUGGLED,
        "GET /hello HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n" SMUGGLED,
    };
    FOR_BOTH_SERVERS(NULL)
    {
        array_items(request, requests)
            expect_refusal(kit.port, *request, strlen(*request));
    }
}

TEST(a_reply_can_fail_have_headers_and_be_aborted)
{
    FOR_BOTH_CLIENTS(NULL)
    {
        raw_call(&c, &r, "GET /teapot HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_uint_eq(r.status, 418);
        ck_assert_body(r, "{\"error\":\"short and \\\"stout\\\"\"}\n");
        ck_assert_span_eq(raw_header(&r, "X-One"), "1");
        ck_assert_span_eq(raw_header(&r, "X-Two"), "2");
        raw_sendf(&c, "GET /cut HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert(raw_ended(&c));
    }
}

TEST(a_listener_may_use_ipv6)
{
    struct httpd_listener_config listener = fixture_listener(HTTPD_THREADS);
    struct err err = {0};
    struct raw c;
    struct raw_reply r = {0};
    fixture_init(NULL);
    listener.address = "::"; /* and IPv4 */
    if (httpd_listen(kit.d, &listener, &kit.port, &err) == 0) {
        raw_open(&c, kit.port);
        raw_call(&c, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_body(r, "hello\n");
        raw_reply_fini(&r);
        raw_close(&c);
    } else { /* this machine has no IPv6 */
        ck_assert_ptr_eq(strstr(err.msg, "listen on [::]:0: "), err.msg);
    }
    fixture_fini();
}

TEST(a_bad_address_is_an_error_that_names_it)
{
    fixture_start(HTTPD_THREADS, NULL);
    const struct {
        const char *address;
        unsigned port;
        const char *error;
    } cases[] = {
        {"127.0.0.1", kit.port, "Address already in use"},
        {"localhost", 0, "expected an IP address"},
        {"192.0.2.1", 0, "Cannot assign requested address"},
        {"127.0.0.1", 65536, "port: expected at most 65535"},
    };
    array_items(c, cases) {
        struct httpd_listener_config listener = fixture_listener(HTTPD_THREADS);
        struct err err = {0};
        listener.address = c->address;
        listener.port = c->port;
        cleanup_free char *want =
            xasprintf("listen on %s:%u: %s", c->address, c->port, c->error);
        ck_assert_int_eq(httpd_listen(kit.d, &listener, NULL, &err), -1);
        ck_assert_str_eq(err.msg, want);
    }
    fixture_fini();
}

TEST(no_descriptor_is_inherited_or_left_open)
{
    unsigned before = raw_count_fds();
    fixture_start(HTTPD_THREADS, NULL);
    struct httpd_listener_config second = fixture_listener(HTTPD_EVENTS);
    unsigned port;
    struct err err = {0};
    ck_assert_done(httpd_listen(kit.d, &second, &port, &err), err);
    struct raw a, b;
    struct raw_reply r = {0};
    raw_open(&a, kit.port);
    raw_open(&b, port);
    raw_call(&a, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_call(&b, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    unsigned own = 0;
    for (int fd = 3; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);
        own += flags >= 0 && (flags & FD_CLOEXEC);
    }
    ck_assert_uint_ge(own, raw_count_fds() - before);
    raw_reply_fini(&r);
    raw_close(&a);
    raw_close(&b);
    fixture_fini();
    ck_assert_uint_eq(raw_count_fds(), before);
}
