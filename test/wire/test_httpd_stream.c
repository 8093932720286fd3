/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>
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

START_TEST(a_stream_is_filled_after_a_second_without_a_wakeup)
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
END_TEST

START_TEST(the_body_precedes_the_stream_and_head_opens_none)
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
END_TEST

START_TEST(an_aborted_stream_ends_without_its_last_chunk)
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
END_TEST

START_TEST(an_http_1_0_stream_ends_with_the_connection)
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
END_TEST

/* The client closes its sending side together with its request: the server has
 * often seen that before the stream is opened. */
START_TEST(a_half_closed_connection_closes_its_stream)
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
END_TEST

static enum httpd_stream_result endless(void *ctx, struct buf *out)
{
    (void)ctx;
    buf_reserve(out, 100000);
    memset(out->p + out->n, 'x', 100000);
    out->n += 100000;
    return HTTPD_STREAM_MORE;
}

static void count_open(void *ctx, struct httpd_open_stream *stream)
{
    (void)ctx, (void)stream;
    atomic_fetch_add(&kit.opened, 1);
}

static void count_close(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&kit.closed, 1);
}

static const struct httpd_stream endless_stream = {
    .open = count_open, .fill = endless, .close = count_close};

static void on_endless(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    (void)req;
    reply->stream = &endless_stream;
    reply->stream_ctx = ctx;
}

static const struct httpd_route endless_routes[] = {{"GET", "/endless", on_endless}, {0}};

START_TEST(a_client_that_does_not_read_its_stream_is_disconnected)
{
    FOR_BOTH_SERVERS(&(struct httpd_limits){.idle_ms = 200}, .routes = endless_routes)
    {
        struct raw c;
        raw_open(&c, kit.port);
        raw_sendf(&c, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n");
        expect_counts(1, 1);
        lib_wait(fixture_is_empty());
        raw_close(&c);
    }
}
END_TEST

START_TEST(stopping_closes_waiting_streams_once)
{
    FOR_BOTH_MODES(mode)
    {
        fixture_start(mode, NULL);
        struct raw c[20];
        struct raw_reply r = {0};
        for (int i = 0; i < 20; i++)
            open_stream(&c[i], &r);
        expect_counts(20, 0);
        fixture_fini();
        ck_assert_int_eq(atomic_load(&kit.closed), 20);
        for (int i = 0; i < 20; i++) {
            bool last = false;
            ck_assert_int_eq(raw_read_chunk(&c[i], &r, &last), RAW_CLOSED);
            raw_close(&c[i]);
        }
        raw_reply_fini(&r);
    }
}
END_TEST

static void *wake_in_a_loop(void *arg)
{
    while (!atomic_load((atomic_bool *)arg))
        fixture_say("x", HTTPD_STREAM_WAIT, true);
    return NULL;
}

START_TEST(wakeups_may_race_with_connects_and_disconnects)
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
END_TEST

/* A stream that asks for its second fill at a time, and never waits for a wake-up. */
struct timed {
    struct httpd_open_stream *stream;
    int64_t at_ms; /* 0: before the first fill */
};

static atomic_llong timed_came_ms;

static void timed_open(void *ctx, struct httpd_open_stream *stream)
{
    ((struct timed *)ctx)->stream = stream;
}

static enum httpd_stream_result timed_fill(void *ctx, struct buf *out)
{
    enum { LATER_MS = 2500 };
    struct timed *t = ctx;
    if (t->at_ms) {
        atomic_store(&timed_came_ms, clock_mono_ms() - t->at_ms);
        buf_adds(out, "due\n");
        return HTTPD_STREAM_END;
    }
    t->at_ms = clock_mono_ms() + LATER_MS;
    httpd_stream_wake_at(t->stream, t->at_ms);
    return HTTPD_STREAM_WAIT;
}

static void timed_close(void *ctx)
{
    atomic_fetch_add(&kit.closed, 1);
    free(ctx);
}

static void on_timed(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply)
{
    static const struct httpd_stream stream = {
        .open = timed_open, .fill = timed_fill, .close = timed_close};
    (void)ctx, (void)req;
    struct timed *t = xcalloc(1, sizeof *t);
    reply->stream = &stream;
    reply->stream_ctx = t;
}

static const struct httpd_route timed_routes[] = {{"GET", "/timed", on_timed}, {0}};

START_TEST(a_stream_is_filled_at_the_time_that_it_names)
{
    fixture_start_with(HTTPD_EVENTS, NULL,
                       &(struct httpd_listener_config){.routes = timed_routes});
    struct raw c;
    struct raw_reply r = {0};
    raw_open(&c, kit.port);
    raw_sendf(&c, "GET /timed HTTP/1.1\r\nHost: x\r\n\r\n");
    ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
    expect_body(&c, &r, "due\n");
    ck_assert_int_ge(atomic_load(&timed_came_ms), 0); /* not after one second */
    raw_close(&c);
    raw_reply_fini(&r);
    fixture_fini();
    ck_assert_int_eq(atomic_load(&kit.closed), 1);
}
END_TEST

UNIT_MAIN("httpd_stream", a_stream_is_filled_after_a_second_without_a_wakeup,
          a_stream_is_filled_at_the_time_that_it_names,
          the_body_precedes_the_stream_and_head_opens_none,
          an_aborted_stream_ends_without_its_last_chunk,
          an_http_1_0_stream_ends_with_the_connection,
          a_half_closed_connection_closes_its_stream,
          a_client_that_does_not_read_its_stream_is_disconnected,
          stopping_closes_waiting_streams_once,
          wakeups_may_race_with_connects_and_disconnects)
