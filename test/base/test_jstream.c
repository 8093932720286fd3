/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jstream.h"

#include "base/mem.h"
#include "lib/unit.h"

struct seen {
    struct buf items; /* the items, one per line */
    char version[32];
    unsigned tries;
};

static void on_item(void *ctx, struct jread *j)
{
    struct seen *seen = ctx;
    struct span raw;
    seen->tries++;
    if (!jread_raw(j, &raw))
        return;
    buf_add_span(&seen->items, raw);
    buf_addc(&seen->items, '\n');
}

static void on_member(void *ctx, struct jread_str key, struct jread *j)
{
    struct seen *seen = ctx;
    struct jread_str inner, version = {0};
    if (!jread_key_is(key, "metadata")) {
        jread_skip(j);
        return;
    }
    jread_object(j, "metadata");
    while (jread_member(j, &inner)) {
        if (jread_key_is(inner, "resourceVersion"))
            jread_string(j, "metadata.resourceVersion", &version);
        else
            jread_skip(j);
    }
    if (jread_check(j, NULL) == 0)
        snprintf(seen->version, sizeof seen->version, "%.*s", (int)version.n, version.p);
}

static const struct jstream_handler handler = {on_item, on_member};

static int feed_in_pieces(struct jstream *l, const char *text, size_t piece,
                          struct err *err)
{
    size_t n = strlen(text);
    for (size_t at = 0; at < n; at += piece) {
        size_t len = n - at < piece ? n - at : piece;
        cleanup_free char *copy = xmalloc(len);
        memcpy(copy, text + at, len);
        if (jstream_feed(l, copy, len, err))
            return -1;
    }
    return jstream_end(l, err);
}

static const struct {
    enum jstream_shape shape;
    const char *text, *items, *version;
} good[] = {
    {JSTREAM_LIST,
     "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"42\",\"remaining\":[1]},"
     "\"items\":[ {\"a\":1}, \"two\\u00e9\", 3 ,{\"n\":[[],{}]}] , \"after\":true} \n",
     "{\"a\":1}\n\"two\\u00e9\"\n3\n{\"n\":[[],{}]}\n", "42"},
    {JSTREAM_WATCH, "{\"type\":\"ADDED\"}\n{\"type\":\"DELETED\"}{\"x\":[1]} \n\n",
     "{\"type\":\"ADDED\"}\n{\"type\":\"DELETED\"}\n{\"x\":[1]}\n", ""},
};

START_TEST(a_stream_decodes_the_same_in_any_pieces)
{
    for (size_t piece = 1; piece <= strlen(good[_i].text); piece++) {
        struct seen seen = {0};
        struct jstream l;
        struct err err = {0};
        jstream_init(&l, good[_i].shape, 1 << 20, &handler, &seen);
        ck_assert_done(feed_in_pieces(&l, good[_i].text, piece, &err), err);
        ck_assert_str_eq(seen.items.p, good[_i].items);
        ck_assert_str_eq(seen.version, good[_i].version);
        jstream_fini(&l);
        buf_fini(&seen.items);
    }
}
END_TEST

START_TEST(an_event_is_delivered_with_its_newline)
{
    struct seen seen = {0};
    struct jstream l;
    struct err err = {0};
    jstream_init(&l, JSTREAM_WATCH, 1 << 20, &handler, &seen);
    const char *text =
        "{\"type\":\"BOOKMARK\",\"long\":\"012345678901234567890123456789\"}";
    ck_assert_done(jstream_feed(&l, text, strlen(text) - 1, &err), err);
    ck_assert_uint_eq(seen.items.n, 0);
    ck_assert_done(jstream_feed(&l, "}\n", 2, &err), err);
    ck_assert_uint_gt(seen.items.n, 0);
    jstream_fini(&l);
    buf_fini(&seen.items);
}
END_TEST

START_TEST(tiny_pieces_of_a_large_item_take_linear_time)
{
    struct seen seen = {0};
    struct jstream l;
    struct err err = {0};
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "{\"items\":[\"");
    for (int i = 0; i < 100000; i++)
        buf_addc(&text, 'x');
    buf_adds(&text, "\"]}");
    jstream_init(&l, JSTREAM_LIST, 1 << 20, &handler, &seen);
    ck_assert_done(feed_in_pieces(&l, text.p, 1, &err), err);
    ck_assert_uint_eq(seen.items.n, 100003);
    ck_assert_uint_lt(seen.tries, 150);
    jstream_fini(&l);
    buf_fini(&seen.items);
}
END_TEST

START_TEST(malformed_streams_are_rejected)
{
    static const struct {
        enum jstream_shape shape;
        const char *text;
    } cases[] = {
        {JSTREAM_LIST, "[]"},
        {JSTREAM_LIST, "null"},
        {JSTREAM_LIST, "{\"items\":[1,2"},
        {JSTREAM_LIST, "{\"items\":[1,2]"},
        {JSTREAM_LIST, "{\"items\":[1 2]}"},
        {JSTREAM_LIST, "{\"items\":{}}"},
        {JSTREAM_LIST, "{\"items\":[]}x"},
        {JSTREAM_LIST, ""},
        {JSTREAM_WATCH, "{\"type\":"},
        {JSTREAM_WATCH, "{} ]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t piece = 1; piece <= 16; piece++) {
            struct seen seen = {0};
            struct jstream l;
            jstream_init(&l, cases[i].shape, 1 << 20, &handler, &seen);
            ck_assert_msg(feed_in_pieces(&l, cases[i].text, piece, NULL) == -1,
                          "accepted: %s", cases[i].text);
            jstream_fini(&l);
            buf_fini(&seen.items);
        }
    }
}
END_TEST

START_TEST(an_item_over_the_limit_is_an_error)
{
    struct seen seen = {0};
    struct jstream l;
    struct err err = {0};
    jstream_init(&l, JSTREAM_WATCH, 100, &handler, &seen);
    char piece[64];
    memset(piece, ' ', sizeof piece);
    piece[0] = '"';
    ck_assert_done(jstream_feed(&l, piece, sizeof piece, &err), err);
    memset(piece, 'x', sizeof piece);
    ck_assert_int_eq(jstream_feed(&l, piece, sizeof piece, &err), -1);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
    jstream_fini(&l);
    buf_fini(&seen.items);
}
END_TEST

int main(void)
{
    const struct unit_loop tests[] = {
        {a_stream_decodes_the_same_in_any_pieces, ARRAY_LEN(good)},
        {an_event_is_delivered_with_its_newline, 1},
        {tiny_pieces_of_a_large_item_take_linear_time, 1},
        {malformed_streams_are_rejected, 1},
        {an_item_over_the_limit_is_an_error, 1}};
    return unit_run_loops("jstream", tests, ARRAY_LEN(tests), 60);
}
