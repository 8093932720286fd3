/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpd_fixture.h"

TEST(chunks_over_the_limit_are_413_and_then_disconnected)
{
    FOR_BOTH_CLIENTS(NULL, .max_body = 1000)
    {
        raw_sendf(&c,
                  "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3E8\r\n%01000d\r\n1\r\nx\r\n5\r\nhello\r\n0\r\n\r\n",
                  0);
        ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
        ck_assert_uint_eq(r.status, 413);
        /* The body was read to its end, so the connection stays open. */
        raw_call(&c, &r,
                 "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "1\r\nh\r\n1\r\ni\r\n0\r\n\r\n");
        ck_assert_body(r, "hi");
        /* More than 1 MiB beyond the limit: closed without a reply. */
        raw_sendf(&c,
                  "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        cleanup_free char *body = xcalloc(65536, 1);
        int sent = 0;
        while (sent < 4000 && raw_sendf(&c, "10000\r\n") && raw_send(&c, body, 65536) &&
               raw_sendf(&c, "\r\n"))
            sent++;
        ck_assert_int_lt(sent, 4000);
    }
}

/* Begins a request whose body is never complete. */
static void begin(struct raw *c, int received, int64_t all)
{
    raw_open(c, kit.port);
    raw_sendf(c, "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n%0*d",
              received, 0);
    lib_wait(metric("request_body_bytes") == all);
}

static void post(struct raw *c, struct raw_reply *r, int n)
{
    raw_sendf(c, "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%0*d", n, n,
              0);
    ck_assert_int_eq(raw_read(c, r), RAW_OK);
}

TEST(the_largest_incomplete_body_makes_room_for_smaller_ones)
{
    FOR_BOTH_MODES(mode)
    {
        fixture_start(mode, &(struct httpd_limits){.max_bodies = 1000});
        struct httpd_listener_config other = fixture_listener(HTTPD_EVENTS);
        unsigned port;
        struct err err = {0};
        ck_assert_done(httpd_listen(kit.d, &other, &port, &err), err);
        struct raw small, large, b;
        struct raw_reply r = {0};
        begin(&small, 200, 200);
        begin(&large, 700, 900);
        /* The other listener shares the limit. */
        raw_open(&b, port);
        post(&b, &r, 101);
        ck_assert_body(r, "101");
        ck_assert(raw_ended(&large));
        lib_wait(metric("request_body_bytes") == 200);
        /* Nothing is larger than these. */
        post(&b, &r, 900);
        ck_assert_uint_eq(r.status, 503);
        ck_assert_span_eq(raw_header(&r, "Retry-After"), "1");
        raw_sendf(&b,
                  "POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "385\r\n%0901d\r\n0\r\n\r\n",
                  0);
        ck_assert_int_eq(raw_read(&b, &r), RAW_OK);
        ck_assert_uint_eq(r.status, 503);
        post(&b, &r, 2);
        ck_assert_body(r, "2");
        /* A disconnect releases the bytes of an incomplete body. */
        raw_reset(&small);
        raw_close(&large);
        lib_wait(metric("request_body_bytes") == 0);
        post(&b, &r, 1000);
        ck_assert_body(r, "1000");
        ck_assert_int_eq(metric("connections_evicted_total"), 1);
        raw_close(&b);
        raw_reply_fini(&r);
        fixture_fini();
    }
}

/* Clients that send large bodies at the same time; a closed connection would be no answer. */
TEST(a_body_without_memory_is_503_and_not_disconnected)
{
    enum { BODIES = 8, ALL = 30 << 20 };
    FOR_BOTH_CLIENTS(&(struct httpd_limits){.max_bodies = 20 << 20}, .max_body = 32 << 20)
    {
        cleanup_free char *body = xcalloc(1 << 20, 1);
        struct raw many[BODIES];
        for (int i = 0; i < BODIES; i++) {
            raw_open(&many[i], kit.port);
            raw_sendf(&many[i],
                      "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
                      (int)ALL);
        }
        for (int sent = 0; sent < ALL; sent += 1 << 20)
            for (int i = 0; i < BODIES; i++)
                ck_assert(raw_send(&many[i], body, 1 << 20));
        for (int i = 0; i < BODIES; i++) {
            ck_assert_int_eq(raw_read(&many[i], &r), RAW_OK);
            ck_assert_uint_eq(r.status, 503);
            raw_close(&many[i]);
        }
    }
}

TEST(a_get_has_a_small_body_only)
{
    FOR_BOTH_CLIENTS(NULL)
    {
        raw_sendf(&c,
                  "GET /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 4096\r\n\r\n%04096d",
                  0);
        ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
        ck_assert_body(r, "hello\n");
        raw_sendf(&c,
                  "GET /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "1001\r\n%04097d\r\n0\r\n\r\n",
                  0);
        ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
        ck_assert_uint_eq(r.status, 413);
        raw_call(&c, &r,
                 "GET /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 4097\r\n\r\n");
        ck_assert_uint_eq(r.status, 413);
        ck_assert(raw_ended(&c));
    }
}

struct asker {
    atomic_int asked;
};

static bool asks_for_key(void *ctx, const struct httpd_request *req,
                         struct httpd_reply *reply)
{
    struct asker *asker = ctx;
    atomic_fetch_add(&asker->asked, 1);
    ck_assert_uint_eq(req->body.n, 0);
    if (httpd_header(req, "X-Key"))
        return true;
    httpd_fail(reply, 401, "no key");
    return false;
}

TEST(a_client_is_rejected_before_it_sends_its_body)
{
    struct asker asker = {0};
    FOR_BOTH_CLIENTS(NULL, .authorize = asks_for_key, .authorize_ctx = &asker)
    {
        atomic_store(&asker.asked, 0);
        raw_call(&c, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_uint_eq(r.status, 401); /* and the connection stays open */
        raw_call(&c, &r,
                 "POST /size HTTP/1.1\r\nHost: x\r\nX-Key: k\r\n"
                 "Content-Length: 2\r\n\r\nhi");
        ck_assert_body(r, "2");
        ck_assert_int_eq(atomic_load(&asker.asked), 2); /* once per request */
        raw_call(&c, &r, "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
        ck_assert_uint_eq(r.status, 401);
        static const char *const coming[] = {"Content-Length: 8000000",
                                             "Transfer-Encoding: chunked"};
        for (int i = 0; mode == HTTPD_THREADS && i < 2; i++) { /* the other reads first */
            raw_close(&c);
            raw_open(&c, kit.port);
            raw_sendf(&c, "POST /size HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", coming[i]);
            ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
            ck_assert_uint_eq(r.status, 401);
            ck_assert_body(r, "{\"error\":\"no key\"}\n");
            ck_assert_span_eq(raw_header(&r, "Connection"), "close");
            ck_assert(raw_ended(&c));
        }
    }
}
