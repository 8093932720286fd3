/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"
#include "setup/edit.h"

/* Edits of YAML; all other bytes stay. */

static struct buf out;
static struct err err;

static void expect(int rc, const char *want)
{
    ck_assert_msg(rc == 0, "%s", err.msg);
    ck_assert_span_eq(buf_span(&out), want);
    buf_fini(&out);
}

/* The edit fails and returns nothing. */
static void rejects(int rc, const char *why)
{
    ck_assert_int_eq(rc, -1);
    ck_assert_msg(strstr(err.msg, why) != NULL, "\"%s\" lacks \"%s\"", err.msg, why);
    ck_assert_uint_eq(out.n, 0);
    buf_fini(&out);
}

static int append(const char *text, const char *path, const char *item)
{
    return edit_append("f", span_of(text), path, item, &out, &err);
}

START_TEST(an_item_gets_the_indent_of_its_list)
{
    expect(append("a:\n- x\n# end\n", "a", "- y\n"), "a:\n- x\n- y\n# end\n");
    expect(append("a:\n    - x # c\n\n\nb: 1\n", "a", "- k: v\n  l: w\n"),
           "a:\n    - x # c\n    - k: v\n      l: w\n\n\nb: 1\n");
    expect(append("a:\n- x: |\n    t\n    u\nb: 1\n", "a", "- y\n"),
           "a:\n- x: |\n    t\n    u\n- y\nb: 1\n");
    expect(append("a:\n- x", "a", "- y\n"), "a:\n- x\n- y\n");
    expect(append("- a: [1,\n   2]\n", "", "- y\n"), "- a: [1,\n   2]\n- y\n");
    expect(append("a:\n- b:\n  - 1\n  c: 2\n- d\n", "a.0.b", "- 3\n"),
           "a:\n- b:\n  - 1\n  - 3\n  c: 2\n- d\n");
}
END_TEST

START_TEST(an_unsafe_item_is_rejected)
{
    static const struct {
        const char *text, *path, *why;
    } cases[] = {
        {"a: [x]\n", "a", "edited safely"},
        {"a: []\n", "a", "edited safely"},
        {"a:\n- - x\n", "a.0", "edited safely"},
        {"a: x\n", "a", "a is not a list"},
        {"a: x\n", "b", "b is not a list"},
        {"a:\r\n- x\r\n", "a", "CRLF"},
        {"a:\n- x\n---\nb: 1\n", "a", "not a single document"},
        {"a: &x\n- x\n", "a", "anchors"},
        {"a: [", "a", "f:2"},
        {"", "a", "not a single document"},
        /* YAML counts one line more than LF does: the item would be misplaced. */
        {"t: \"x\u2028y\"\na:\n- x\nb:\n- z\n", "a", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int rc = append(cases[i].text, cases[i].path, "- y\n");
        if (cases[i].why)
            rejects(rc, cases[i].why);
        else if (rc == 0) /* or else it must be right */
            expect(rc, "t: \"x\u2028y\"\na:\n- x\n- y\nb:\n- z\n");
        buf_fini(&out);
    }
}
END_TEST

START_TEST(a_key_is_added)
{
    static const char text[] = "spec:\n  a: 1\n  b:\n    c: 2\nend: 1\n";
    expect(edit_add_key("f", span_of(text), "spec", "new:\n- 1\n", &out, &err),
           "spec:\n  a: 1\n  b:\n    c: 2\n  new:\n  - 1\nend: 1\n");
    expect(edit_add_key("f", SPAN("a: 1\n# c\n"), "", "new: 2\n", &out, &err),
           "a: 1\nnew: 2\n# c\n");
    rejects(edit_add_key("f", SPAN("{a: 1}\n"), "", "new: 2\n", &out, &err), "safely");
    rejects(edit_add_key("f", SPAN("a: 1\n"), "", "a: 2\n", &out, &err), "safely");
    rejects(edit_add_key("f", SPAN("a: 1\n...\n"), "a", "b: 2\n", &out, &err),
            "not a mapping");
}
END_TEST

START_TEST(a_value_is_replaced)
{
    expect(edit_set("f", SPAN("a:\n- b:  x # x\n  c: x\n"), "a.0.b", "yy", &out, &err),
           "a:\n- b:  yy # x\n  c: x\n");
    expect(edit_set("f", SPAN("{\"a\": \"x\"}"), "a", "y", &out, &err), "{\"a\": \"y\"}");
    expect(edit_set("f", SPAN("a: 'x'"), "a", "", &out, &err), "a: ''");
    rejects(edit_set("f", SPAN("a: x\n"), "a", "1", &out, &err), "safely"); /* a number */
    rejects(edit_set("f", SPAN("a: x\n"), "a", "y: z", &out, &err), "safely");
    rejects(edit_set("f", SPAN("a: \"x\\ty\"\n"), "a", "z", &out, &err), "safely");
    rejects(edit_set("f", SPAN("a: |\n  x\n"), "a", "z", &out, &err), "safely");
    rejects(edit_set("f", SPAN("a:\n  b: 1\n"), "a", "z", &out, &err),
            "not a single value");
}
END_TEST

START_TEST(a_boolean_stays_a_boolean)
{
    expect(edit_set("f", SPAN("a: true # c\n"), "a", "false", &out, &err),
           "a: false # c\n");
    expect(edit_set("f", SPAN("{\"a\": false}"), "a", "true", &out, &err),
           "{\"a\": true}");
    rejects(edit_set("f", SPAN("a: 'x'\nb: true\n"), "b", "1", &out, &err), "safely");
}
END_TEST

START_TEST(a_key_is_removed)
{
    expect(edit_remove("f", SPAN("a: 1\nb:\n  c: 2 # x\n  d: {e: 1}\nf: 3\n"), "b", &out,
                       &err),
           "a: 1\nf: 3\n");
    expect(edit_remove("f", SPAN("x:\n- a: 1\n  b:\n  # c\n    c: 2\n- d\n"), "x.0.b",
                       &out, &err),
           "x:\n- a: 1\n- d\n");
    expect(edit_remove("f", SPAN("{\n\"a\": 1,\n\"b\": {\n\"c\": 2\n},\n\"d\": 3\n}\n"),
                       "b", &out, &err),
           "{\n\"a\": 1,\n\"d\": 3\n}\n");
    /* Its lines hold something else, too. */
    rejects(edit_remove("f", SPAN("{\"a\": 1, \"b\": 2}\n"), "b", &out, &err), "safely");
    rejects(edit_remove("f", SPAN("- b: 1\n  c: 2\n"), "0.b", &out, &err), "safely");
    rejects(edit_remove("f", SPAN("a: 1\n"), "b", &out, &err), "safely");
}
END_TEST

START_TEST(the_lines_of_a_list)
{
    cleanup_free char *text = lib_read(CONFIG);
    ck_assert_done(edit_lines("f", span_of(text), "extenders", &out, &err), err);
    const char *from = strstr(text, "- urlPrefix");
    ck_assert_ptr_nonnull(from);
    ck_assert_span_eq(buf_span(&out), from); /* the last key of the file */
    buf_fini(&out);
    expect(edit_lines("f", SPAN("a:\n   - x:\n\n      y: 1\nb: 1\n"), "a", &out, &err),
           "- x:\n\n   y: 1\n");
    rejects(edit_lines("f", SPAN("a: [1]\n"), "a", &out, &err), "safely");
}
END_TEST

UNIT_MAIN("setup/edit", an_item_gets_the_indent_of_its_list, an_unsafe_item_is_rejected,
          a_key_is_added, a_value_is_replaced, a_boolean_stays_a_boolean,
          a_key_is_removed, the_lines_of_a_list)
