/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"
#include "setup/edit.h"

/* Edits of YAML; all other bytes stay, and a rejected edit changes nothing. */

static struct err err;

enum op { ITEM, SET, REMOVE };

static int apply(enum op op, struct buf *text, const char *path, const char *value)
{
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    cleanup_free char *parent = xmemdup0(path, dot ? (size_t)(dot - path) : 0);
    cleanup_edit struct edit e = {0};
    int rc = edit_open("f", buf_span(text), &e, &err) ? -1
             : op == ITEM ? edit_add_item(&e, parent, key, value, &err)
             : op == SET  ? edit_set(&e, parent, key, value, &err)
                          : edit_remove(&e, path, &err);
    buf_clear(text);
    buf_add_span(text, buf_span(&e.text));
    return rc;
}

START_TEST(an_edit_keeps_the_rest)
{
    static const struct {
        enum op op;
        const char *text, *path, *value, *want; /* NULL: rejected */
    } cases[] = {
        /* An item gets the indent of its list. */
        {ITEM, "a:\n- x\n# end\n", "a", "- y\n", "a:\n- x\n- y\n# end\n"},
        {ITEM, "a:\n    - x # c\n\n\nb: 1\n", "a", "- k: v\n  l: w\n",
         "a:\n    - x # c\n    - k: v\n      l: w\n\n\nb: 1\n"},
        {ITEM, "a:\n- x: |\n    t\n    u\nb: 1\n", "a", "- y\n",
         "a:\n- x: |\n    t\n    u\n- y\nb: 1\n"},
        {ITEM, "a:\n- x", "a", "- y\n", "a:\n- x\n- y\n"},
        {ITEM, "a:\n- b:\n  - 1\n  c: 2\n- d\n", "a.0.b", "- 3\n",
         "a:\n- b:\n  - 1\n  - 3\n  c: 2\n- d\n"},
        {ITEM, "a: x\n", "b", "- y\n", "a: x\nb:\n- y\n"}, /* a new list */
        {ITEM, "a: [x]\n", "a", "- y\n", NULL},
        {ITEM, "a: []\n", "a", "- y\n", NULL},
        {ITEM, "a:\n- - x\n", "a.0", "- y\n", "a:\n- - x\n  - y\n"},
        {ITEM, "a:\n  - [x]\n", "a.0", "- y\n", NULL},
        {ITEM, "a: x\n", "a", "- y\n", NULL},
        {ITEM, "a:\r\n- x\r\n", "a", "- y\n", NULL},
        {ITEM, "a:\n- x\n---\nb: 1\n", "a", "- y\n", NULL},
        {ITEM, "a: &x\n- x\n", "a", "- y\n", NULL},
        {ITEM, "a: [", "a", "- y\n", NULL},
        {ITEM, "", "a", "- y\n", NULL},
        {ITEM, "spec:\n  a: 1\n  b:\n    c: 2\nend: 1\n", "spec.new", "- 1\n",
         "spec:\n  a: 1\n  b:\n    c: 2\n  new:\n  - 1\nend: 1\n"},
        {SET, "a: 1\n# c\n", "new", "z", "a: 1\nnew: z\n# c\n"},
        {SET, "a: 1\n# c\n", "new.b", "z", NULL},
        {SET, "{a: 1}\n", "new", "z", NULL},
        {SET, "a:\n", "a.b", "z", NULL},
        {SET, "a: 1\n...\n", "a.b", "z", NULL},
        {SET, "a:\n- b:  x # x\n  c: x\n", "a.0.b", "yy", "a:\n- b:  yy # x\n  c: x\n"},
        {SET, "{\"a\": \"x\"}", "a", "y", "{\"a\": \"y\"}"},
        {SET, "a: 'x'", "a", "", "a: ''"},
        {SET, "a: {}\nb:\n  c: 1\n", "b.d", "z", "a: {}\nb:\n  c: 1\n  d: z\n"},
        {SET, "a: true # c\n", "a", "false", "a: false # c\n"}, /* stays a boolean */
        {SET, "a: 'x'\nb: true\n", "b", "1", NULL},
        {SET, "a: x\n", "a", "1", NULL}, /* a number */
        {SET, "a: x\n", "a", "y: z", NULL},
        {SET, "a: \"x\\ty\"\n", "a", "z", NULL},
        {SET, "a: |\n  x\n", "a", "z", NULL},
        {SET, "a:\n  b: 1\n", "a", "z", NULL},
        {REMOVE, "a: 1\nb:\n  c: 2 # x\n  d: {e: 1}\nf: 3\n", "b", "", "a: 1\nf: 3\n"},
        {REMOVE, "x:\n- a: 1\n  b:\n    c: 2\n- d\n", "x.0.b", "", "x:\n- a: 1\n- d\n"},
        {REMOVE, "x:\n- a: 1\n  b:\n  # c\n    c: 2\n- d\n", "x.0.b", "", NULL},
        /* Its lines hold something else, too. */
        {REMOVE, "{\"a\": 1, \"b\": 2}\n", "b", "", NULL},
        {REMOVE, "- b: 1\n  c: 2\n", "0.b", "", NULL},
        {REMOVE, "a: 1\n", "b", "", NULL},
        {REMOVE, "a:\n- x\n- k: v\n  l: w\n- y\n", "a.1", "", "a:\n- x\n- y\n"},
        {REMOVE, "a:\n- x\n- y # c\n", "a.1", "", "a:\n- x\n"},
        {REMOVE, "a:\n- x\n-\n  k: v\n", "a.1", "", NULL},
        {REMOVE, "a: [x, y]\n", "a.0", "", NULL},
        {REMOVE, "a:\n- x\n", "a.1", "", NULL},
        /* Nothing stays empty. */
        {REMOVE, "a:\n  b:\n    c:\n    - x\nd: 1\n", "a.b.c.0", "", "d: 1\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf text = {0};
        buf_adds(&text, cases[i].text);
        err = (struct err){0};
        int rc = apply(cases[i].op, &text, cases[i].path, cases[i].value);
        ck_assert_msg((rc == 0) == (cases[i].want != NULL), "%zu: %s%s", i, text.p,
                      err.msg);
        ck_assert_span_eq(buf_span(&text), cases[i].want ? cases[i].want : cases[i].text);
        ck_assert(rc == 0 || err.code == ERR_INVALID);
    }
    /* YAML counts one line more than LF does: the item would be misplaced. */
    cleanup_buf struct buf odd = {0};
    buf_adds(&odd, "t: \"x\u2028y\"\na:\n- x\nb:\n- z\n");
    if (apply(ITEM, &odd, "a", "- y\n") == 0)
        ck_assert_str_eq(odd.p, "t: \"x\u2028y\"\na:\n- x\n- y\nb:\n- z\n");
}
END_TEST

UNIT_MAIN_AROUND("setup/edit", begin, end, an_edit_keeps_the_rest)
