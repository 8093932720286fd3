/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/listwatch.h"

#include "base/mem.h"
#include "domain/object.h"
#include "lib/unit.h"

static struct listwatch feed;
static struct buf heard;

static void on_object(void *ctx, struct jread *j, bool gone)
{
    struct jread_str key;
    struct object_meta meta = {0};
    struct err err;
    ck_assert_ptr_eq(ctx, &feed);
    jread_object(j, "object");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, &feed.arena, &meta, NULL, 0);
        else
            jread_skip(j);
    }
    if (jread_check(j, NULL))
        return;
    bool fault = jread_fault(j, &err);
    buf_printf(&heard, "%s %.*s%s\n", gone ? "gone" : "seen", SPAN_ARG(meta.name),
               fault ? " with a fault" : "");
    if (span_eq(meta.name, SPAN("enough"))) {
        err_set(&err, ERR_INVALID, "enough");
        listwatch_fail(&feed, &err);
    }
}

static void on_bookmark(void *ctx, struct span version)
{
    (void)ctx;
    buf_printf(&heard, "bookmark %.*s\n", SPAN_ARG(version));
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    buf_printf(&heard, "fault: %s\n", err->msg);
}

static const struct listwatch_handler reader = {on_object, on_bookmark, on_fault};

static void begin(bool watch)
{
    buf_clear(&heard);
    buf_adds(&heard, "");
    listwatch_init(&feed, &reader, &feed);
    listwatch_start(&feed, watch);
}

/* Feeds one response in pieces of this size. Returns the result of listwatch_end. */
static int answer(unsigned status, const char *body, size_t piece, const struct err *why)
{
    size_t n = strlen(body);
    bool go_on = true;
    listwatch_begin(&feed, status, -1);
    for (size_t i = 0; i < n && go_on; i += piece)
        go_on = listwatch_data(&feed, body + i, n - i < piece ? n - i : piece);
    return listwatch_end(&feed, why);
}

static void path_is(const char *want)
{
    cleanup_buf struct buf path = {0};
    if (feed.watch)
        listwatch_watch_query(&path, buf_span(&feed.version), 60);
    else
        listwatch_list_query(&path, &feed);
    ck_assert_str_eq(path.p, want);
}

#define POD(name) "{\"metadata\":{\"name\":\"" name "\"}}"

START_TEST(a_list_and_then_a_watch)
{
    for (size_t piece = 1; piece < 300; piece += 13) {
        begin(false);
        path_is("limit=500");
        ck_assert_int_eq(
            answer(
                200,
                "{\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"5\",\"continue\":"
                "\"a b\"},\"items\":[" POD("a") "," POD("b") "]}",
                piece, NULL),
            0);
        path_is("limit=500&continue=a%20b");
        ck_assert_int_eq(
            answer(200,
                   "{\"items\":[" POD("c") "],\"metadata\":{\"resourceVersion\":\"6&\"}}",
                   piece, NULL),
            0);
        ck_assert_uint_eq(feed.next.n, 0);
        ck_assert_span_eq(buf_span(&feed.version), "6&");
        listwatch_start(&feed, true);
        path_is(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion=6%26");
        ck_assert_int_eq(
            answer(200,
                   "{\"type\":\"ADDED\",\"object\":" POD(
                       "d") "}\n"
                            "{\"object\":" POD(
                                "e") ",\"type\":\"MODIFIED\"}\n"
                                     "{\"type\":\"NEWS\",\"object\":" POD(
                                         "x") "}\n"
                                              "{\"type\":\"BOOKMARK\",\"object\":{"
                                              "\"metadata\":{"
                                              "\"resourceVersion\":\"9\"}}}{\"type\":"
                                              "\"DELETED\",\"object\":"
                                              "{\"metadata\":{\"name\":7}}}"
                                              "{\"object\":" POD(
                                                  "y") "}{\"type\":\"ADDED\",\"obj",
                   piece, NULL),
            0);
        ck_assert_str_eq(heard.p, "seen a\nseen b\nseen c\nseen d\nseen e\nbookmark 9\n"
                                  "gone  with a fault\n");
        listwatch_fini(&feed);
    }
}
END_TEST

START_TEST(the_first_error_wins)
{
    begin(true);
    ck_assert_int_eq(
        answer(200,
               "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":"
               "\"too old\"}}\n{\"type\":\"ADDED\",\"object\":" POD("a") "}}",
               400, NULL),
        -1);
    ck_assert_int_eq(feed.err.code, ERR_GONE);
    ck_assert_ptr_nonnull(strstr(feed.err.msg, "too old"));
    ck_assert_str_eq(heard.p, "");
    /* The next start resets it, even without a response. */
    listwatch_start(&feed, true);
    ck_assert_int_eq(listwatch_end(&feed, NULL), -1);
    ck_assert_int_eq(feed.err.code, ERR_UNAVAILABLE);
    listwatch_start(&feed, true);
    ck_assert_int_eq(
        answer(200,
               "{\"type\":\"ADDED\",\"object\":" POD(
                   "enough") "}\n"
                             "{\"type\":\"ADDED\",\"object\":" POD("b") "}\n",
               400, NULL),
        -1);
    ck_assert_str_eq(feed.err.msg, "enough");
    ck_assert_str_eq(heard.p, "seen enough\n");
    listwatch_fini(&feed);
}
END_TEST

START_TEST(an_incomplete_response_is_an_error)
{
    static const struct {
        bool watch, lost;
        unsigned status;
        const char *body;
        enum err_code code;
    } cases[] = {
        {false, false, 200, "{\"items\":[", ERR_INVALID},
        {false, false, 200, "", ERR_INVALID},
        {false, false, 200, "<html>", ERR_INVALID},
        {false, true, 200, "{\"items\":[]}", ERR_TIMEOUT},
        {false, false, 204, "", ERR_INTERNAL},
        {false, false, 403, "{\"message\":\"no\"}", ERR_FORBIDDEN},
        {true, false, 200, "{\"type\":\"ADDED\",\"ob", ERR_NONE},
        {true, false, 200, "", ERR_NONE},
        {true, false, 200, "what\n", ERR_INVALID},
        {true, true, 200, "", ERR_TIMEOUT},
        {true, false, 206, "", ERR_INTERNAL},
        {true, true, 503, "", ERR_UNAVAILABLE},
    };
    static const struct err lost = {ERR_TIMEOUT, "silence"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        begin(cases[i].watch);
        int rc = answer(cases[i].status, cases[i].body, 3, cases[i].lost ? &lost : NULL);
        ck_assert_msg(feed.err.code == cases[i].code, "case %zu: %s", i, feed.err.msg);
        ck_assert_int_eq(rc, cases[i].code == ERR_NONE ? 0 : -1);
        listwatch_fini(&feed);
    }
}
END_TEST

START_TEST(a_page_without_a_response_fails_the_list)
{
    begin(false);
    ck_assert_int_eq(
        answer(200, "{\"metadata\":{\"continue\":\"more\"},\"items\":[]}", 99, NULL), 0);
    ck_assert_int_eq(listwatch_end(&feed, NULL), -1);
    ck_assert_int_eq(feed.err.code, ERR_UNAVAILABLE);
    listwatch_start(&feed, false);
    path_is("limit=500"); /* restarts at the first page */
    listwatch_fini(&feed);
}
END_TEST

START_TEST(retry_after_is_at_most_a_minute)
{
    begin(false);
    ck_assert_int_eq(feed.retry_after_ms, -1);
    listwatch_begin(&feed, 429, 3);
    ck_assert_int_eq(feed.retry_after_ms, 3000);
    listwatch_begin(&feed, 429, 100000);
    ck_assert_int_eq(feed.retry_after_ms, 60000);
    listwatch_fini(&feed);
}
END_TEST

START_TEST(a_malformed_event_is_reported)
{
    begin(true);
    ck_assert_int_eq(
        answer(200,
               "{\"type\":7,\"object\":" POD("a") "}\n[]\n{\"type\":"
                                                  "\"ADDED\",\"object\":" POD("b") "}\n",
               5, NULL),
        0);
    ck_assert_ptr_nonnull(strstr(heard.p, "fault: event.type"));
    ck_assert_ptr_nonnull(strstr(heard.p, "fault: event: expected an object"));
    ck_assert_ptr_nonnull(strstr(heard.p, "seen b\n"));
    listwatch_fini(&feed);
}
END_TEST

UNIT_MAIN("listwatch", a_list_and_then_a_watch, the_first_error_wins,
          an_incomplete_response_is_an_error, a_page_without_a_response_fails_the_list,
          retry_after_is_at_most_a_minute, a_malformed_event_is_reported)
