/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/shared_reply.h"

#include <unistd.h>

#include "base/mem.h"
#include "lib/unit.h"

/* Shared texts of large replies; the test reads the streams itself. */

enum { BYTES = 100 * 1000 };

static struct budget budget;
static struct shared_replies *all;
static int rendered;

static void render(void *ctx, struct buf *out)
{
    (void)ctx;
    rendered++;
    for (int i = 0; i < BYTES; i++)
        buf_addc(out, (char)('a' + rendered % 26));
}

static struct httpd_reply ask(const char *state, bool main)
{
    struct httpd_reply reply = {.status = 200};
    struct shared_reply_source source = {
        .kind = SHARED_REPLY_INSPECT, .state = span_of(state), .render = render};
    shared_reply_send(all, &source, main, &reply);
    return reply;
}

static void leave(struct httpd_reply *reply)
{
    if (reply->stream)
        reply->stream->close(reply->stream_ctx);
    buf_fini(&reply->body);
}

/* Reads up to the end. False: the connection was closed before. */
static bool read_all(struct httpd_reply *reply, char expected)
{
    cleanup_buf struct buf out = {0};
    enum httpd_stream_result result;
    do
        result = reply->stream->fill(reply->stream_ctx, NULL, &out);
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
    all = shared_replies_new(&budget);
}

static void end(void)
{
    shared_replies_free(all);
    ck_assert_uint_eq(budget.used, 0);
}

START_TEST(a_state_is_rendered_once)
{
    begin(10 * BYTES);
    struct httpd_reply a = ask("1", false), b = ask("1", true);
    ck_assert_int_eq(rendered, 1);
    ck_assert(read_all(&a, 'b') && read_all(&b, 'b'));
    leave(&a);
    leave(&b);
    for (int i = 0; i < 5; i++) { /* nobody reads the old ones */
        struct httpd_reply c = ask(i % 2 ? "2" : "3", false);
        ck_assert(read_all(&c, (char)('c' + i)));
        leave(&c);
        ck_assert_uint_lt(budget.used, 2 * BYTES);
    }
    end();
}
END_TEST

/* Asks until the state is rendered, which is once the newest text is old enough. */
static struct httpd_reply ask_until_rendered(const char *state)
{
    int before = rendered;
    for (;;) {
        struct httpd_reply reply = ask(state, false);
        if (rendered > before)
            return reply;
        ck_assert_uint_eq(reply.status, 200); /* shares the newest */
        leave(&reply);
        usleep(10 * 1000);
    }
}

START_TEST(a_text_that_is_read_for_too_long_is_given_up)
{
    begin(10 * BYTES);
    struct httpd_reply slow = ask("1", false), second = ask("2", false);
    ck_assert_int_eq(rendered, 2);
    struct httpd_reply shares = ask("3", false);
    ck_assert_int_eq(rendered, 2);
    struct httpd_reply third = ask_until_rendered("3");
    struct httpd_reply fourth = ask_until_rendered("4");
    ck_assert_int_eq(rendered, 4);
    ck_assert(!read_all(&slow, 'b'));
    ck_assert(read_all(&second, 'c') && read_all(&shares, 'c'));
    ck_assert(read_all(&third, 'd') && read_all(&fourth, 'e'));
    ck_assert_uint_lt(budget.used, (SHARED_REPLY_TEXTS + 1) * (uint64_t)BYTES);
    leave(&slow);
    leave(&second);
    leave(&shares);
    leave(&third);
    leave(&fourth);
    end();
}
END_TEST

static void ck_refused(struct httpd_reply *reply)
{
    ck_assert_uint_eq(reply->status, 503);
    ck_assert_ptr_null(reply->stream);
    ck_assert_str_eq(reply->header[0][0], "Retry-After");
    leave(reply);
}

START_TEST(concurrent_readers_are_limited)
{
    static struct httpd_reply open[SHARED_REPLY_READERS];
    begin(10 * BYTES);
    for (int i = 0; i < SHARED_REPLY_READERS; i++)
        open[i] = ask("1", i < SHARED_REPLY_MAIN_READERS);
    struct httpd_reply more = ask("1", false);
    ck_refused(&more);
    leave(&open[SHARED_REPLY_READERS - 1]);
    more = ask("1", true); /* those of the main port are used up */
    ck_refused(&more);
    open[SHARED_REPLY_READERS - 1] = ask("1", false);
    ck_assert_int_eq(rendered, 1);
    for (int i = 0; i < SHARED_REPLY_READERS; i++) {
        ck_assert_uint_eq(open[i].status, 200);
        leave(&open[i]);
    }
    end();
}
END_TEST

START_TEST(texts_beyond_the_budget_are_not_kept)
{
    begin(BYTES + BYTES / 2);
    struct httpd_reply a = ask("1", false), older = ask("2", false);
    ck_assert(read_all(&a, 'b') && read_all(&older, 'b'));
    leave(&a);
    leave(&older);
    end();
    begin(BYTES / 2);
    struct httpd_reply none = ask("1", false);
    ck_refused(&none);
    end();
}
END_TEST

UNIT_MAIN("shared_reply", a_state_is_rendered_once,
          a_text_that_is_read_for_too_long_is_given_up, concurrent_readers_are_limited,
          texts_beyond_the_budget_are_not_kept)
