/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jread.h"

#include "lib/unit.h"

/* Whether the text is one valid JSON value, parsed as a whole and in every split in two:
 * a prefix of a valid text must not be rejected. */
static bool valid(const char *text, size_t n)
{
    struct jread j;
    jread_init(&j, text, n);
    jread_skip(&j);
    return jread_finish(&j, NULL) == 0;
}

static const char *const good[] = {
    "{}",
    "[]",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "12",
    "-1.5e+10",
    "1E3",
    "\"\"",
    "[1,2,[3,{\"a\":null}]]",
    " { \"a\" : [ ] , \"b\" : { } } \n",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\"",
    "\"\xc3\xa9\xf0\x9f\x98\x80\"",
    "{\"a\":1,\"a\":2}",
    "\"0123456701234567\\n01234567\"",
    "[\"12345678\",\"1234567\"]",
};

static const char *const bad[] = {
    "",
    " ",
    "{",
    "[",
    "}",
    "]",
    "[}",
    "{]",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{a:1}",
    "{\"a\" 1}",
    "{1:2}",
    "01",
    "-",
    "+1",
    "1.",
    ".5",
    "1e",
    "1e+",
    "nul",
    "nulll",
    "True",
    "\"",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\ud800\"",
    "\"\\udc00\"",
    "\"\\ud800\\u0041\"",
    "\"\n\"",
    "\"\t\"",
    "\"\x80\"",
    "\"\xc0\x80\"",
    "\"\xed\xa0\x80\"",
    "\"\xf4\x90\x80\x80\"",
    "\"\xe2\x82\"",
    "1 2",
    "[] []",
    "{}x",
    "\"a\" \"b\"",
    "'a'",
    "NaN",
    "[1]]",
    "\"\\",
};

TEST(valid_values_pass)
{
    array_items(g, good)
        ck_assert_msg(valid(*g, strlen(*g)), "refused: %s", *g);
}

TEST(invalid_values_are_rejected)
{
    array_items(c, bad)
        ck_assert_msg(!valid(*c, strlen(*c)), "accepted: %s", *c);
}

TEST(a_nul_byte_is_no_space_and_no_escape)
{
    ck_assert(!valid("1\0", 2));
    ck_assert(!valid("\"\\\0\"", 4));
    ck_assert(!valid("\"\0\"", 3));
}

TEST(a_prefix_of_a_valid_value_is_truncated_not_bad)
{
    array_items(g, good) {
        size_t n = strlen(*g);
        for (size_t cut = 0; cut <= n; cut++) {
            /* A copy of the exact size, so that a sanitizer detects a read beyond the
             * end. */
            cleanup_free char *head = xmalloc(cut);
            memcpy(head, *g, cut);
            struct jread j;
            jread_init(&j, head, cut);
            jread_continue(&j, head, cut, false);
            struct jread before = j;
            jread_skip(&j);
            ck_assert_msg(j.state != JREAD_BAD, "%s cut at %zu: %s", *g, cut, j.why);
            if (j.state == JREAD_TRUNCATED)
                j = before;
            jread_continue(&j, *g, n, true);
            if (j.pos == 0)
                jread_skip(&j);
            ck_assert_msg(jread_finish(&j, NULL) == 0, "%s cut at %zu", *g, cut);
        }
    }
}

/* Strings are scanned eight bytes at a time: tests each byte at each position. */
TEST(each_byte_of_a_string_is_validated)
{
    for (size_t n = 1; n < 20; n++) {
        for (size_t at = 0; at < n; at++) {
            for (int c = 0; c < 256; c++) {
                char text[32];
                struct jread j;
                memset(text, c % 2 ? 'a' : 0x7f, sizeof text);
                text[0] = '"';
                text[1 + at] = (char)c;
                text[1 + n] = '"';
                jread_init(&j, text, n + 2);
                bool passed = jread_skip(&j), fine = c >= 0x20 && c < 0x80 && c != '\\';
                if (c == '"') { /* end of the string */
                    ck_assert(passed);
                    ck_assert_uint_eq(j.pos, at + 2);
                } else {
                    ck_assert_msg(passed == fine, "byte %d at %zu of %zu", c, at, n);
                }
            }
        }
    }
}

TEST(depth_is_limited)
{
    char text[2 * JREAD_MAX_DEPTH + 2];
    memset(text, '[', JREAD_MAX_DEPTH + 1);
    memset(text + JREAD_MAX_DEPTH + 1, ']', JREAD_MAX_DEPTH + 1);
    ck_assert(valid(text + 1, 2 * JREAD_MAX_DEPTH));
    ck_assert(!valid(text, 2 * JREAD_MAX_DEPTH + 2));
}

TEST(null_counts_as_empty_and_the_parent_continues)
{
    const char *text = "{\"o\":null,\"a\":null,\"last\":1}";
    struct jread j;
    struct jread_str key, inner;
    int64_t last = 0;
    jread_init(&j, text, strlen(text));
    jread_object(&j, "top");
    while (jread_member(&j, &key)) {
        if (jread_key_is(key, "o")) {
            jread_object(&j, "o");
            while (jread_member(&j, &inner))
                ck_abort_msg("null has no member");
        } else if (jread_key_is(key, "a")) {
            jread_array(&j, "a");
            while (jread_item(&j))
                ck_abort_msg("null has no item");
        } else {
            jread_i64(&j, "last", &last);
        }
    }
    ck_assert_int_eq(jread_finish(&j, NULL), 0);
    ck_assert_int_eq(last, 1);
}

TEST(a_wrong_type_is_an_error_with_its_path)
{
    struct jread j;
    struct jread_str s;
    struct err err = {0};
    jread_init(&j, " 17", 3);
    ck_assert(!jread_string(&j, "metadata.name", &s));
    ck_assert_int_eq(jread_finish(&j, &err), -1);
    ck_assert_str_eq(err.msg, "metadata.name: expected a string, at byte 1");
    ck_assert_int_eq(err.code, ERR_INVALID);
}

TEST(a_faulty_object_does_not_stop_the_list)
{
    const char *text = "[{\"n\":\"x\",\"o\":[1]},{\"n\":7,\"o\":{}}]";
    struct jread j;
    struct jread_str key;
    struct err err = {0};
    int64_t n = 0;
    int faults = 0;
    jread_init(&j, text, strlen(text));
    jread_array(&j, "list");
    while (jread_item(&j)) {
        jread_object(&j, "item");
        while (jread_member(&j, &key)) {
            if (jread_key_is(key, "n")) {
                jread_i64(&j, "item.n", &n);
            } else {
                struct jread_str inner;
                jread_object(&j, "item.o");
                while (jread_member(&j, &inner))
                    jread_skip(&j);
            }
        }
        if (jread_fault(&j, &err)) {
            faults++;
            ck_assert_str_eq(err.msg, "item.n: expected a number, at byte 6");
        }
    }
    ck_assert_done(jread_finish(&j, &err), err);
    ck_assert_int_eq(faults, 1);
    ck_assert_int_eq(n, 7);
}

TEST(numbers_must_be_integers_in_range)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } cases[] = {
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"1.0", false, 0},
        {"1e2", false, 0},
        {"-0", true, 0},
    };
    array_items(c, cases) {
        struct jread j;
        int64_t v = 0;
        jread_init(&j, c->text, strlen(c->text));
        ck_assert_msg(jread_i64(&j, "v", &v) == c->ok, "%s", c->text);
        ck_assert_int_eq(v, c->value);
    }
}

TEST(keys_compare_decoded)
{
    struct jread j;
    struct jread_str s;
    const char *text = "\"No\\u0064e\\u004eames\"";
    jread_init(&j, text, strlen(text));
    ck_assert(jread_string(&j, "key", &s));
    ck_assert(jread_str_eq(s, SPAN("NodeNames")));
    ck_assert(!jread_str_eq(s, SPAN("nodenames")));
    ck_assert(jread_str_eq_nocase(s, SPAN("nodenames")));
    ck_assert(!jread_str_eq(s, SPAN("NodeName")));
    ck_assert(!jread_str_eq(s, SPAN("NodeNamesX")));
}

/* The strings of an array, read singly or in batches; other values become '?'. */
static void gather(const char *text, size_t n, bool at_once, struct buf *out)
{
    struct jread j;
    struct jread_str strings[3];
    bool more;
    jread_init(&j, text, n);
    jread_array(&j, "list");
    do {
        size_t got;
        while (at_once && (got = jread_strings(&j, strings, ARRAY_LEN(strings))) > 0)
            for (size_t i = 0; i < got; i++)
                buf_printf(out, "%.*s|", (int)strings[i].n, strings[i].p);
        more = jread_item(&j);
        if (more && jread_peek(&j) == JREAD_STRING) {
            if (jread_string(&j, "list[]", &strings[0]))
                buf_printf(out, "%.*s|", (int)strings[0].n, strings[0].p);
        } else if (more) {
            jread_skip(&j);
            buf_adds(out, "?|");
        }
    } while (more);
    buf_printf(out, "%d", jread_finish(&j, NULL));
}

static void check_batch(const char *list, size_t n)
{
    cleanup_buf struct buf one = {0}, many = {0};
    cleanup_free char *text = xmalloc(n);
    memcpy(text, list, n);
    gather(text, n, false, &one);
    gather(text, n, true, &many);
    ck_assert_msg(strcmp(one.p, many.p) == 0, "%.*s: %s, not %s", (int)n, list, many.p,
                  one.p);
}

static void check_plain(const struct buf *list, bool plain)
{
    struct jread j;
    struct jread_str first;
    jread_init(&j, list->p, list->n);
    jread_array(&j, "list");
    bool read = jread_strings(&j, &first, 1) == 1;
    ck_assert_msg((read && first.plain) == plain, "%s", list->p);
}

/* Long enough that the first string is read in blocks. */
TEST(a_batch_notices_each_byte_of_a_string)
{
    static const char *const odd[] = {"",   " ",    "/",    "\\n",      "\\",
                                      "\"", "\x01", "\x7f", "\xc3\xa9", "\xff"};
    array_indices(i, odd) {
        for (int before = 0; before < 40; before++) {
            for (int after = 0; after < 20; after++) {
                cleanup_buf struct buf list = {0};
                buf_printf(&list, "[\"%.*s%s%.*s\",\"next\",\"%.60d\"]", before,
                           "abcdefghijabcdefghijabcdefghijabcdefghij", odd[i], after,
                           "01234567890123456789", 0);
                check_batch(list.p, list.n);
                check_plain(&list, !odd[i][0] || odd[i][0] == '"');
            }
        }
    }
}
