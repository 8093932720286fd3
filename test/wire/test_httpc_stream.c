/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "wire/httpc_fixture.h"

/* The calls to the sink of a stream. */
struct story {
    unsigned begins, ends;
    unsigned status;
    int64_t retry_after_s, date_s;
    struct buf body;
    struct err why; /* code ERR_NONE: complete */
    bool stop_at_begin, stop_at_data;
    void (*at_end)(struct story *story);
    void *ctx;
};

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s, int64_t date_s)
{
    struct story *story = ctx;
    ck_assert_uint_eq(story->body.n, 0);
    ck_assert_uint_eq(story->ends, 0);
    story->begins++;
    story->status = status;
    story->retry_after_s = retry_after_s;
    story->date_s = date_s;
    return !story->stop_at_begin;
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct story *story = ctx;
    ck_assert_uint_eq(story->begins, 1);
    ck_assert_uint_eq(story->ends, 0);
    buf_add(&story->body, p, n);
    return !story->stop_at_data;
}

static void on_end(void *ctx, const struct err *why)
{
    struct story *story = ctx;
    story->ends++;
    if (why)
        story->why = *why;
    if (story->at_end)
        story->at_end(story);
}

static const struct httpc_sink sink = {on_begin, on_data, on_end};

static struct httpc_request watch_of(const char *path)
{
    return (struct httpc_request){.method = "GET", .path = path, .stall_ms = 20000};
}

static void run_until(struct httpc_loop *loop, const unsigned *count, unsigned want)
{
    int64_t limit = clock_mono_ms() + 60000;
    while (*count < want) {
        ck_assert_msg(clock_mono_ms() < limit, "the stream does not get on");
        httpc_loop_run(loop, 1000);
    }
}

/* A server, a client and a loop, with one stream run to its end. */
static void tell(stub_fn serve, void *ctx, struct httpc_request req, struct story *story)
{
    FOR_CLIENT(serve, ctx)
    {
        struct httpc_loop *loop = httpc_loop_new();
        httpc_stream_start(loop, c, &req, &sink, story);
        run_until(loop, &story->ends, 1);
        ck_assert_uint_eq(story->ends, 1);
        httpc_loop_free(loop);
        ck_assert_uint_eq(story->ends, 1);
    }
}

static void send_all_lines(struct stub_conn *conn, void *ctx)
{
    while (stub_read(conn))
        stub_printf(conn, "%s", (const char *)ctx);
}

static void send_once(struct stub_conn *conn, void *ctx)
{
    stub_read(conn);
    stub_printf(conn, "%s", (const char *)ctx);
}

#define CHUNKED  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#define LENGTH_9 "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"

TEST(a_stream_begins_once_and_ends_once)
{
    struct story story = {0};
    tell(send_all_lines,
         (void *)"HTTP/1.1 100 Continue\r\n\r\n"
                 "HTTP/1.1 103 Early\r\nRetry-After: 3\r\n\r\n" CHUNKED
                 "3\r\nabc\r\n5\r\ndefgh\r\n0\r\nRetry-After: 4\r\n\r\n",
         watch_of("/watch"), &story);
    ck_assert_uint_eq(story.begins, 1);
    ck_assert_uint_eq(story.status, 200);
    ck_assert_int_eq(story.retry_after_s, -1);
    ck_assert_int_eq(story.why.code, ERR_NONE);
    ck_assert_span_eq(buf_span(&story.body), "abcdefgh");
    buf_fini(&story.body);
}

TEST(the_date_of_the_server_is_returned)
{
    static const struct {
        const char *head;
        int64_t date_s;
    } cases[] = {
        {"date:Sun, 22 Nov 2026 10:30:00 GMT\r\n", 1795343400},
        {"Date: Sunday, 22-Nov-26 10:30:00 GMT\r\n", 1795343400},
        {"Date: yesterday\r\n", 0},
        {"Date:\r\n", 0},
        {"X-Date: Sun, 22 Nov 2026 10:30:00 GMT\r\n", 0},
    };
    array_items(c, cases) {
        struct story story = {0};
        cleanup_free char *answer =
            xasprintf("HTTP/1.1 103 Early\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n"
                      "HTTP/1.1 200 OK\r\n%sContent-Length: 2\r\n\r\nok",
                      c->head);
        tell(send_all_lines, answer, watch_of("/watch"), &story);
        ck_assert_int_eq(story.why.code, ERR_NONE);
        ck_assert_int_eq(story.date_s, c->date_s);
        buf_fini(&story.body);
    }
}

/* Sends `ctx`, then nothing until the client disconnects. */
static void send_and_wait(struct stub_conn *conn, void *ctx)
{
    bool was_reset;
    send_once(conn, ctx);
    stub_drain(conn, &was_reset);
}

TEST(a_stream_that_fails_ends_with_an_error)
{
    enum { STALL_MS = 300 };
    static const char stopped[] = "stopped by the caller";
    static const struct {
        stub_fn serve;
        const char *answer;
        enum err_code code;
        unsigned begins;
        size_t bytes;
        const char *text;
    } cases[] = {
        {send_once, CHUNKED "3\r\nabc\r\n", ERR_UNAVAILABLE, 1, 3, ""},
        {send_once, LENGTH_9 "abc", ERR_UNAVAILABLE, 1, 3, ""},
        {send_once, "HTTP/1.1 200 OK\r\nContent-", ERR_UNAVAILABLE, 0, 0, ""},
        {send_once, "", ERR_UNAVAILABLE, 0, 0, ""},
        {send_once, LENGTH_9 "abc", ERR_INVALID, 1, 0, stopped}, /* at begin */
        {send_once, LENGTH_9 "abc", ERR_INVALID, 1, 3, stopped}, /* at data */
        {send_and_wait, CHUNKED "3\r\nabc\r\n", ERR_TIMEOUT, 1, 3, "no data for 300 ms"},
        {send_and_wait, CHUNKED, ERR_TIMEOUT, 1, 0, "no data for 300 ms"},
        {send_and_wait, "", ERR_TIMEOUT, 0, 0, "no data for 300 ms"},
    };
    array_items(c, cases) {
        bool stops = c->text == stopped, stalls = c->code == ERR_TIMEOUT;
        struct story story = {.stop_at_begin = stops && !c->bytes, .stop_at_data = stops};
        struct httpc_request req = watch_of("/");
        int64_t start = clock_mono_ms();
        req.stall_ms = stalls ? STALL_MS : req.stall_ms;
        tell(c->serve, (void *)(uintptr_t)c->answer, req, &story);
        ck_assert_int_eq(story.why.code, c->code);
        ck_assert_uint_eq(story.begins, c->begins);
        ck_assert_uint_eq(story.body.n, c->bytes);
        ck_assert_ptr_eq(strstr(story.why.msg, "GET http://127."), story.why.msg);
        ck_assert_contains(story.why.msg, c->text);
        ck_assert(!stalls || clock_mono_ms() - start >= STALL_MS);
        buf_fini(&story.body);
    }
}

TEST(timeout_ms_limits_a_stream_as_a_whole)
{
    struct httpc_request req = watch_of("/");
    unsigned begins = 0;
    for (req.timeout_ms = 300; !begins; req.timeout_ms *= 2) { /* for a busy machine */
        struct story story = {0};
        ck_assert_int_lt(req.timeout_ms, 60000);
        tell(send_and_wait, (void *)CHUNKED "3\r\nabc\r\n", req, &story);
        begins = story.begins;
        ck_assert_int_ne(story.why.code, ERR_NONE);
        ck_assert(!begins || story.why.code == ERR_TIMEOUT);
        buf_fini(&story.body);
    }
}

TEST(an_invalid_request_is_reported_to_end)
{
    struct story story = {0};
    tell(send_all_lines, (void *)"", watch_of("no path"), &story);
    ck_assert_int_eq(story.why.code, ERR_INVALID);
    ck_assert_uint_eq(story.begins, 0);

    struct stub *s = stub_start(send_all_lines, (void *)"");
    struct httpc *c = client_of(stub_url(s));
    stub_stop(s);
    struct httpc_loop *loop = httpc_loop_new();
    struct httpc_request req = watch_of("/");
    story = (struct story){0};
    httpc_stream_start(loop, c, &req, &sink, &story);
    httpc_free(c); /* the stream has its own reference */
    run_until(loop, &story.ends, 1);
    ck_assert_int_eq(story.why.code, ERR_UNAVAILABLE);
    httpc_loop_free(loop);
}

struct again {
    struct httpc_loop *loop;
    struct httpc *c;
    struct httpc_stream *other;
    unsigned left; /* how often the watch restarts */
};

static void start_again(struct story *story)
{
    struct again *again = story->ctx;
    struct httpc_request req = watch_of("/");
    if (!again->left--)
        return;
    ck_assert_span_eq(buf_span(&story->body), "ok");
    buf_clear(&story->body);
    story->begins = story->ends = 0;
    httpc_stream_start(again->loop, again->c, &req, &sink, story);
}

TEST(a_stream_can_be_started_from_the_end_of_another)
{
    struct stub *s = stub_start(stub_echo, (void *)"ok");
    struct again again = {
        .loop = httpc_loop_new(), .c = client_of(stub_url(s)), .left = 4};
    struct story story = {.at_end = start_again, .ctx = &again};
    struct httpc_request req = watch_of("/");
    httpc_stream_start(again.loop, again.c, &req, &sink, &story);
    run_until(again.loop, &story.ends, 1);
    ck_assert_int_eq(story.why.code, ERR_NONE);
    ck_assert_uint_eq(stub_requests(s), 5);
    ck_assert_uint_eq(stub_connections(s), 1);
    httpc_loop_free(again.loop);
    httpc_free(again.c);
    buf_fini(&story.body);
    stub_stop(s);
}

static void cancel_other(struct story *story)
{
    struct again *again = story->ctx;
    httpc_stream_cancel(again->other);
    again->other = NULL;
}

static void keep_or_close(struct stub_conn *conn, void *ctx)
{
    bool was_reset;
    (void)ctx;
    stub_read(conn);
    cleanup_free char *asked = stub_request(conn->server, conn->index);
    stub_printf(conn, CHUNKED "2\r\nhi\r\n");
    if (strstr(asked, "/leave"))
        stub_printf(conn, "0\r\n\r\n");
    else
        stub_drain(conn, &was_reset);
}

TEST(a_cancelled_stream_makes_no_more_calls)
{
    struct stub *s = stub_start(keep_or_close, NULL);
    struct httpc *c = client_of(stub_url(s));
    struct again again = {.loop = httpc_loop_new()};
    struct story stay = {0}, leave = {.at_end = cancel_other, .ctx = &again};
    struct httpc_request req = watch_of("/stay");
    again.other = httpc_stream_start(again.loop, c, &req, &sink, &stay);
    run_until(again.loop, &stay.begins, 1);
    req.path = "/leave";
    httpc_stream_start(again.loop, c, &req, &sink, &leave);
    run_until(again.loop, &leave.ends, 1);
    ck_assert_ptr_null(again.other);
    httpc_loop_run(again.loop, 50);
    ck_assert_uint_eq(stay.ends, 0);

    struct httpc_stream *unborn = httpc_stream_start(again.loop, c, &req, &sink, &stay);
    httpc_stream_cancel(unborn);
    httpc_stream_cancel(NULL);
    httpc_loop_run(again.loop, 50);
    ck_assert_uint_eq(stay.ends, 0);
    ck_assert_uint_eq(stub_requests(s), 2);
    httpc_loop_free(again.loop);
    httpc_free(c);
    buf_fini(&stay.body);
    buf_fini(&leave.body);
    stub_stop(s);
}

static void *wake(void *loop)
{
    httpc_loop_wake(loop);
    return NULL;
}

TEST(another_thread_can_wake_the_loop)
{
    struct httpc_loop *loop = httpc_loop_new();
    pthread_t thread;
    int64_t start = clock_mono_ms();
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(pthread_create(&thread, NULL, wake, loop), 0);
        httpc_loop_run(loop, 20000);
        pthread_join(thread, NULL);
    }
    ck_assert_int_lt(clock_mono_ms() - start, 10000);
    start = clock_mono_ms();
    httpc_loop_run(loop, 100); /* without one it waits */
    ck_assert_int_ge(clock_mono_ms() - start, 90);
    httpc_loop_free(loop);
}
