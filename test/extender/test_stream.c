/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/stream.h"

#include "base/clock.h"
#include "lib/unit.h"

/* Limits, heartbeats and the end of streams, and shared texts; the test reads the streams
 * itself. */

enum { BYTES = 100 * 1000, MOST = 6, MAIN_MOST = 2, HEARTBEAT_MS = 30 };

static struct stream_kind kind = {
    .what = "tests", .most = MOST, .main_most = MAIN_MOST, .heartbeat_ms = HEARTBEAT_MS};
static struct budget budget;
static struct stream_text *all;
static int rendered, closed;

static void close_reply(struct httpd_reply *reply)
{
    if (reply->stream)
        reply->stream->close(reply->stream_ctx);
    buf_fini(&reply->body);
}

static enum httpd_stream_result fill(struct httpd_reply *reply, struct buf *out)
{
    return reply->stream->fill(reply->stream_ctx, NULL, out);
}

static void ck_refused(struct httpd_reply *reply, const char *why)
{
    ck_assert_uint_eq(reply->status, 503);
    ck_assert_ptr_null(reply->stream);
    ck_assert_str_eq(reply->header[0][0], "Retry-After");
    ck_assert_contains(reply->body.p, why);
    close_reply(reply);
}

/* -- a watch that is read `lines` times -- */

struct watch {
    struct stream stream;
    int lines;
};

static enum httpd_stream_result read_line(void *stream, struct buf *out)
{
    struct watch *w = stream;
    if (w->lines)
        buf_adds(out, "line\n");
    return w->lines && --w->lines ? HTTPD_STREAM_MORE : HTTPD_STREAM_WAIT;
}

static void close_watch(void *stream)
{
    (void)stream;
    closed++;
}

static struct httpd_reply watch(bool main, int64_t end_ms, int lines)
{
    struct httpd_reply reply = {.status = 200};
    struct watch *w = stream_open(&kind, &(struct stream_client){main, end_ms}, sizeof *w,
                                  read_line, close_watch, &reply);
    if (w)
        w->lines = lines;
    return reply;
}

TEST(open_streams_are_limited)
{
    struct httpd_reply open[MOST];
    for (int i = 0; i < MOST; i++)
        open[i] = watch(i < MAIN_MOST, INT64_MAX, 0);
    struct httpd_reply more = watch(false, INT64_MAX, 0);
    ck_refused(&more, "too many tests: 6 are open; retry later");
    close_reply(&open[MOST - 1]);
    more = watch(true, INT64_MAX, 0); /* those of the main port are used up */
    ck_refused(&more, "2 are open on this port; use --observe-port");
    open[MOST - 1] = watch(false, INT64_MAX, 0);
    for (int i = 0; i < MOST; i++)
        close_reply(&open[i]);
    ck_assert_int_eq(closed, MOST + 1);
    ck_assert_uint_eq(atomic_load(&kind.open) + atomic_load(&kind.main_open), 0);
}

TEST(a_watch_is_read_at_intervals_and_sends_heartbeats)
{
    cleanup_buf struct buf out = {0};
    struct httpd_reply w = watch(false, INT64_MAX, 2);
    int64_t begun_ms = clock_mono_ms();
    ck_assert_int_eq(fill(&w, &out), HTTPD_STREAM_MORE);
    ck_assert_int_eq(fill(&w, &out), HTTPD_STREAM_MORE);
    ck_assert_str_eq(out.p, "line\nline\n"); /* up to date now */
    for (int i = 1; i <= 2; i++) {
        buf_clear(&out);
        lib_wait(fill(&w, &out) == HTTPD_STREAM_MORE);
        ck_assert_str_eq(out.p, "\n");
        ck_assert_int_ge(clock_mono_ms() - begun_ms, i * STREAM_PAUSE_MS);
    }
    close_reply(&w);
}

TEST(a_watch_ends_when_it_must_be_authorized_again)
{
    cleanup_buf struct buf out = {0};
    struct httpd_reply w = watch(false, clock_mono_ms(), 1);
    ck_assert_int_eq(fill(&w, &out), HTTPD_STREAM_END);
    ck_assert_uint_eq(out.n, 0);
    close_reply(&w);
}

/* -- shared texts -- */

static void render(void *ctx, struct buf *out)
{
    (void)ctx;
    rendered++;
    for (int i = 0; i < BYTES; i++)
        buf_addc(out, (char)('a' + rendered % 26));
}

static struct httpd_reply ask(const char *state)
{
    struct httpd_reply reply = {.status = 200};
    stream_text_send(all, span_of(state), &(struct stream_client){false, INT64_MAX},
                     &reply);
    return reply;
}

/* Reads up to the end. False: the connection was closed before. */
static bool read_all(struct httpd_reply *reply, char expected)
{
    cleanup_buf struct buf out = {0};
    enum httpd_stream_result result;
    do
        result = fill(reply, &out);
    while (result == HTTPD_STREAM_MORE);
    if (result != HTTPD_STREAM_END)
        return false;
    ck_assert_uint_eq(out.n, reply->stream_length);
    ck_assert_int_eq(out.p[0], expected);
    ck_assert_int_eq(out.p[out.n - 1], expected);
    return true;
}

static void begin(uint64_t max)
{
    budget = (struct budget){.max = max};
    rendered = 0;
    all = stream_text_new(&kind, &budget, render, NULL);
}

static void end(void)
{
    stream_text_free(all);
    ck_assert_uint_eq(budget.used, 0);
}

TEST(a_state_is_rendered_once)
{
    begin(10 * BYTES);
    struct httpd_reply a = ask("1"), b = ask("1");
    ck_assert_int_eq(rendered, 1);
    ck_assert(read_all(&a, 'b') && read_all(&b, 'b'));
    close_reply(&a);
    close_reply(&b);
    for (int i = 0; i < 5; i++) { /* nobody reads the old ones */
        struct httpd_reply c = ask(i % 2 ? "2" : "3");
        ck_assert(read_all(&c, (char)('c' + i)));
        close_reply(&c);
        ck_assert_uint_lt(budget.used, 2 * BYTES);
    }
    end();
}

TEST(a_text_that_is_read_for_too_long_is_given_up)
{
    begin(10 * BYTES);
    struct httpd_reply slow = ask("1"), second = ask("2"), shares = ask("3"), third;
    ck_assert_int_eq(rendered, 2);
    lib_wait(({ /* until the second text is old enough */
                third = ask("3");
                if (rendered == 2)
                    close_reply(&third);
                rendered == 3;
    }));
    ck_assert(!read_all(&slow, 'b'));
    ck_assert(read_all(&second, 'c') && read_all(&shares, 'c') && read_all(&third, 'd'));
    ck_assert_uint_lt(budget.used, 3 * (uint64_t)BYTES);
    close_reply(&slow);
    close_reply(&second);
    close_reply(&shares);
    close_reply(&third);
    end();
}

TEST(texts_beyond_the_budget_are_not_kept)
{
    begin(BYTES + BYTES / 2);
    struct httpd_reply a = ask("1"), older = ask("2");
    ck_assert(read_all(&a, 'b') && read_all(&older, 'b'));
    close_reply(&a);
    close_reply(&older);
    end();
    begin(BYTES / 2);
    struct httpd_reply none = ask("1");
    ck_refused(&none, "too many large replies");
    end();
}
