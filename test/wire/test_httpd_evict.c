/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "lib/lib.h"
#include "wire/httpd_fixture.h"

/*
 * Full listeners. A new connection replaces another one, so that a probe is
 * answered whatever the other clients do.
 */

/* A client waits no longer than any limit of the server. */
enum { FULL = 8, NEVER_MS = 10 * 60 * 1000 };

#define HELLO "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"

static const char *const probes[] = {"/hello", NULL};

/* Requests that have been read, which a new connection does not evict. */
static atomic_int read_requests;

static bool trusts_header(void *ctx, const struct httpd_request *req,
                          struct httpd_reply *reply)
{
    (void)ctx, (void)reply;
    atomic_fetch_add(&read_requests, 1);
    if (httpd_header(req, "X-Trust"))
        httpd_trust(req);
    return true;
}

static const struct httpd_limits never = {.first_request_ms = NEVER_MS,
                                          .idle_ms = NEVER_MS};

static void start(enum httpd_mode mode, unsigned handlers)
{
    atomic_store(&read_requests, 0);
    fixture_start(mode, &never, .connections = FULL, .probes = probes,
                  .authorize = trusts_header, .handlers = handlers);
}

/* A new client is answered, although no other connection reaches a limit. */
static void probe(void)
{
    struct raw c;
    struct raw_reply r = {0};
    raw_open(&c, kit.port);
    raw_call(&c, &r, HELLO);
    ck_assert_body(r, "hello\n");
    raw_reply_fini(&r);
    raw_close(&c);
}

/* What connections may wait for. */
static const char *const beginnings[] = {
    "",
    "GET /hel",
    "GET /hello HTTP/1.1\r\nHost: x\r\nX: ",
    "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc",
    "GET /big?16 HTTP/1.1\r\nHost: x\r\n\r\n", /* never read */
    "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n",
    HELLO,
    HELLO HELLO "GET /hel", /* pipelined */
};

TEST(every_kind_of_waiting_connection_gives_way)
{
    FOR_BOTH_MODES(mode)
    {
        array_items(beginning, beginnings) {
            struct raw c[FULL];
            start(mode, 0);
            for (int i = 0; i < FULL; i++) {
                raw_open(&c[i], kit.port);
                raw_send(&c[i], *beginning, strlen(*beginning));
            }
            lib_wait(metric("connections") == FULL);
            for (int i = 0; i < 3 * FULL; i++)
                probe();
            /* a queued request is rejected */
            ck_assert_int_ge(metric("connections_evicted_total") +
                                 metric("requests_rejected_total"),
                             1);
            for (int i = 0; i < FULL; i++)
                raw_close(&c[i]);
            lib_wait(fixture_is_empty());
            fixture_fini();
            ck_assert_int_le(atomic_load(&kit.opened), atomic_load(&kit.closed));
        }
    }
}

/* They wake up now and then, which makes them no younger. */
TEST(many_waiting_streams_give_way)
{
    enum { MANY = 1200 };
    static struct raw c[MANY];
    file_raise_limit();
    fixture_start(HTTPD_EVENTS, &never, .connections = MANY);
    for (int i = 0; i < MANY; i++) {
        raw_open(&c[i], kit.port);
        raw_sendf(&c[i], "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    lib_wait(atomic_load(&kit.opened) == MANY);
    for (int i = 0; i < 3; i++)
        probe();
    ck_assert_int_le(metric("connections_evicted_total"), 3); /* no more than necessary */
    for (int i = 0; i < MANY; i++)
        raw_close(&c[i]);
    fixture_fini();
}

TEST(blocked_handlers_do_not_keep_a_probe_out)
{
    enum { HANDLERS = 4, RUN = 3 }; /* one is reserved for trusted clients */
    struct raw c[FULL], late;
    struct raw_reply r = {0};
    int rejected = 0;
    start(HTTPD_THREADS, HANDLERS);
    for (int i = 0; i < FULL; i++) {
        raw_open(&c[i], kit.port);
        raw_sendf(&c[i], "GET /block HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    fixture_wait_blocked(RUN);
    lib_wait(atomic_load(&read_requests) == FULL);
    raw_open(&late, kit.port);
    lib_wait(metric("requests_rejected_total") > 0);
    for (int i = 0; i < 3; i++)
        probe();
    ck_assert_int_eq(kit.waiting, RUN);
    fixture_release();
    for (int i = 0; i < FULL; i++) {
        ck_assert_int_eq(raw_read(&c[i], &r), RAW_OK);
        if (r.status == 503) {
            ck_assert_span_eq(raw_header(&r, "Retry-After"), "1");
            ck_assert_span_eq(raw_header(&r, "Connection"), "close");
            rejected++;
        } else {
            ck_assert_body(r, "unblocked");
        }
        raw_close(&c[i]);
    }
    ck_assert_int_ge(rejected, 1);
    ck_assert_int_le(rejected, FULL - RUN);
    ck_assert_int_eq(metric("requests_rejected_total"), rejected);
    raw_close(&late);
    raw_reply_fini(&r);
    lib_wait(fixture_is_empty());
    fixture_fini();
}

TEST(a_stop_ends_the_wait_for_a_handler)
{
    struct raw c[FULL];
    start(HTTPD_THREADS, 2);
    for (int i = 0; i < FULL; i++) {
        raw_open(&c[i], kit.port);
        raw_sendf(&c[i], "GET /block HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    fixture_wait_blocked(2);
    lib_wait(metric("requests_in_flight") == FULL);
    fixture_release();
    fixture_fini();
    for (int i = 0; i < FULL; i++)
        raw_close(&c[i]);
}

#define TRUSTED(path) "GET " path " HTTP/1.1\r\nHost: x\r\nX-Trust: 1\r\n\r\n"

TEST(a_trusted_client_keeps_its_connection_and_has_a_handler)
{
    enum { HANDLERS = 4, RUN = 3 };
    struct raw trusted, c[FULL];
    struct raw_reply r = {0};
    start(HTTPD_THREADS, HANDLERS);
    raw_open(&trusted, kit.port);
    raw_call(&trusted, &r, TRUSTED("/show"));
    for (int i = 0; i < FULL - 1; i++) {
        raw_open(&c[i], kit.port);
        if (i < RUN + 1)
            raw_sendf(&c[i], "GET /block HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    fixture_wait_blocked(RUN);
    for (int i = 0; i < 3 * FULL; i++)
        probe();
    ck_assert(!fixture_is_readable(&trusted)); /* it is open */
    raw_sendf(&trusted, TRUSTED("/block"));
    fixture_wait_blocked(HANDLERS);
    fixture_release();
    ck_assert_int_eq(raw_read(&trusted, &r), RAW_OK);
    ck_assert_body(r, "unblocked");
    raw_close(&trusted);
    for (int i = 0; i < FULL - 1; i++)
        raw_close(&c[i]);
    raw_reply_fini(&r);
    lib_wait(fixture_is_empty());
    fixture_fini();
}
