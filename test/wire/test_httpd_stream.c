/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>

#include "base/clock.h"
#include "wire/httpd_fixture.h"

#define STREAM "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"

static void open_stream(struct raw *c, struct raw_reply *r)
{
    raw_open(c, kit.port);
    raw_sendf(c, STREAM);
    ck_assert_int_eq(raw_read_head(c, r), RAW_OK);
    ck_assert_uint_eq(r->status, 200);
    ck_assert_span_eq(raw_header(r, "Transfer-Encoding"), "chunked");
}

/* Reads until the body is `text`. */
static void expect_body(struct raw *c, struct raw_reply *r, const char *text)
{
    bool last = false;
    while (r->body.n < strlen(text) && !last)
        ck_assert_int_eq(raw_read_chunk(c, r, &last), RAW_OK);
    ck_assert_body(*r, text);
    buf_clear(&r->body);
}

static void expect_counts(int opened, int closed)
{
    lib_wait(atomic_load(&kit.opened) >= opened && atomic_load(&kit.closed) >= closed);
    ck_assert_int_eq(atomic_load(&kit.opened), opened);
    ck_assert_int_eq(atomic_load(&kit.closed), closed);
}

TEST(a_stream_is_filled_after_a_second_without_a_wakeup)
{
    FOR_BOTH_SERVERS(NULL)
    {
        struct raw c;
        open_stream(&c, &r);
        expect_counts(1, 0);
        fixture_say("unheard\n", HTTPD_STREAM_WAIT, false);
        expect_body(&c, &r, "unheard\n");
        /* It waits: fill is called once a second. */
        ck_assert_int_lt(atomic_load(&kit.fills), 20);
        raw_close(&c);
    }
}

TEST(the_body_precedes_the_stream_and_head_opens_none)
{
    FOR_BOTH_SERVERS(NULL)
    {
        struct raw c;
        raw_open(&c, kit.port);
        raw_sendf(&c, "HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
        ck_assert_uint_eq(r.status, 200);
        ck_assert(raw_ended(&c));
        expect_counts(0, 1);
        raw_close(&c);
        raw_open(&c, kit.port);
        raw_sendf(&c, "GET /stream?first HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
        expect_body(&c, &r, "first");
        fixture_say("second\n", HTTPD_STREAM_WAIT, true);
        expect_body(&c, &r, "second\n");
        raw_close(&c);
    }
}

TEST(an_aborted_stream_ends_without_its_last_chunk)
{
    FOR_BOTH_SERVERS(NULL)
    {
        struct raw older, c;
        raw_open(&older, kit.port);
        raw_call(&older, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        open_stream(&c, &r);
        fixture_say("half a li", HTTPD_STREAM_ABORT, true);
        bool last = false;
        enum raw_result rc;
        do
            rc = raw_read_chunk(&c, &r, &last);
        while (rc == RAW_OK);
        ck_assert(!last);
        ck_assert_int_eq(rc, RAW_CLOSED);
        ck_assert_body(r, "half a li");
        expect_counts(atomic_load(&kit.opened), 1);
        /* Released, while an older stream is open and this client is connected. */
        lib_wait(metric("connections") == 1);
        raw_close(&c);
        raw_close(&older);
    }
}

TEST(an_http_1_0_stream_ends_with_the_connection)
{
    FOR_BOTH_SERVERS(NULL)
    {
        struct raw older, c;
        raw_open(&older, kit.port);
        raw_call(&older, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        raw_open(&c, kit.port);
        raw_sendf(&c, "GET /stream?a HTTP/1.0\r\n\r\n");
        ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
        ck_assert_ptr_null(raw_header(&r, "Transfer-Encoding").p);
        expect_counts(1, 0);
        int asked = atomic_load(&kit.fills);
        fixture_say("b", HTTPD_STREAM_WAIT, true);
        cleanup_buf struct buf all = {0};
        ck_assert_int_eq(raw_take(&c, &all, 2), RAW_OK);
        while (atomic_load(&kit.fills) < asked + 2) /* until it waits again */
            sched_yield();
        fixture_say("", HTTPD_STREAM_END, true);
        ck_assert_int_eq(raw_read_all(&c, &all), RAW_OK);
        ck_assert_span_eq(buf_span(&all), "ab");
        lib_wait(metric("connections") == 1);
        raw_close(&c);
        raw_close(&older);
    }
}

/* A stream that has no data yet, but work to do, gets another turn soon, and leaves turns to
 * others. */
TEST(a_stream_without_data_shares_the_thread)
{
    FOR_BOTH_SERVERS(NULL)
    {
        struct raw c, other;
        open_stream(&c, &r);
        expect_counts(1, 0);
        fixture_say("", HTTPD_STREAM_MORE, true);
        int64_t until_ms = lib_now_ms() + 10 * 1000 * LIB_SLOWER;
        for (int asked = atomic_load(&kit.fills); atomic_load(&kit.fills) < asked + 100;
             sched_yield())
            ck_assert_int_lt(lib_now_ms(), until_ms);
        raw_open(&other, kit.port);
        raw_call(&other, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        fixture_say("", HTTPD_STREAM_END, true);
        expect_counts(1, 1);
        raw_close(&other);
        raw_close(&c);
    }
}

/* The client closes its sending side together with its request: the server has
 * often seen that before the stream is opened. */
TEST(a_half_closed_connection_closes_its_stream)
{
    enum { TIMES = 20 };
    FOR_BOTH_SERVERS(NULL)
    {
        int64_t best = INT64_MAX;
        for (int i = 1; i <= TIMES; i++) {
            struct raw c;
            cleanup_buf struct buf all = {0};
            int64_t begin = lib_now_ms();
            raw_open(&c, kit.port);
            raw_sendf(&c, STREAM);
            shutdown(c.fd, SHUT_WR);
            ck_assert_int_eq(raw_read_all(&c, &all), RAW_OK);
            expect_counts(i, i);
            if (lib_now_ms() - begin < best)
                best = lib_now_ms() - begin;
            raw_close(&c);
        }
        /* If it waited first, each would take a second. */
        ck_assert_int_lt(best, 500);
    }
}

TEST(a_client_that_does_not_read_its_stream_is_disconnected)
{
    enum { MORE_THAN_SOCKETS_HOLD = 16 << 20 };
    cleanup_free char *text = xcalloc(1, MORE_THAN_SOCKETS_HOLD);
    memset(text, 'x', MORE_THAN_SOCKETS_HOLD - 1);
    FOR_BOTH_SERVERS(&(struct httpd_limits){.idle_ms = 200})
    {
        struct raw c;
        open_stream(&c, &r);
        expect_counts(1, 0);
        fixture_say(text, HTTPD_STREAM_WAIT, true);
        expect_counts(1, 1);
        lib_wait(fixture_is_empty());
        raw_close(&c);
    }
}

static void *wake_in_a_loop(void *arg)
{
    while (!atomic_load((atomic_bool *)arg))
        fixture_say("x", HTTPD_STREAM_WAIT, true);
    return NULL;
}

TEST(wakeups_may_race_with_connects_and_disconnects)
{
    FOR_BOTH_MODES(mode)
    {
        fixture_start(mode, NULL);
        atomic_bool stop = false;
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, wake_in_a_loop, &stop);
        for (int i = 0; i < 200; i++) {
            struct raw c;
            struct raw_reply r = {0};
            open_stream(&c, &r);
            bool last;
            ck_assert_int_eq(raw_read_chunk(&c, &r, &last), RAW_OK);
            if (i % 2)
                raw_reset(&c);
            raw_close(&c);
            raw_reply_fini(&r);
        }
        struct raw c;
        struct raw_reply r = {0};
        open_stream(&c, &r);
        httpd_free(kit.d); /* while wake-ups continue */
        atomic_store(&stop, true);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        ck_assert_int_eq(atomic_load(&kit.closed), 201);
        kit.d = NULL;
        fixture_fini();
        raw_close(&c);
        raw_reply_fini(&r);
    }
}
