/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/jpath.h"

#include "lib/unit.h"

/* Values of foreign JSON by path: whatever is on the way, there is no value rather than a
 * fault. */

/* The API server stores a NUL in an annotation: it must not hide the other objects of a
 * list, and nothing is compared or written back without what follows the NUL. */
TEST(a_string_with_a_nul_is_no_fault_of_the_document)
{
    json_auto_t *j =
        jpath_read(SPAN("{\"items\":[{\"a\":\"x\\u0000y\"},{\"a\":\"z\"}]}"), NULL);
    ck_assert(span_eq(jpath_text(j, "items.0.a"), SPAN("x\0y")));
    ck_assert_str_eq(jpath_string(j, "items.0.a"), "");
    ck_assert_str_eq(jpath_string(j, "items.1.a"), "z");
}

TEST(values_by_path)
{
    struct err err = {0};
    json_auto_t *j = jpath_read(
        SPAN("{\"a\":[{\"b\":\"text\"},{\"n\":7}],\"d.e\":1,\"none\":null}"), &err);
    ck_assert_ptr_nonnull(j);
    ck_assert_ptr_eq(jpath(j, ""), j);
    ck_assert_str_eq(jpath_string(j, "a.0.b"), "text");
    ck_assert(span_eq(jpath_text(j, "a.0.b"), SPAN("text")));
    ck_assert_int_eq(jpath_number(j, "a.1.n"), 7);
    static const char *const absent[] = {"a.2", "a.-1",   "a.x", "a.0.b.c",
                                         "d.e", "none.x", "b",   "a.0..b"};
    array_items(path, absent) {
        ck_assert_msg(!jpath(j, *path), "%s", *path);
        ck_assert_str_eq(jpath_string(j, *path), "");
        ck_assert_ptr_null(jpath_text(j, *path).p);
        ck_assert_int_eq(jpath_number(j, *path), 0);
    }
    ck_assert_ptr_null(jpath(NULL, "a"));
    ck_assert(!jpath_read(SPAN(""), &err) && !jpath_read(SPAN("{"), &err));
    ck_assert_contains(err.msg, "not JSON: ");
}
