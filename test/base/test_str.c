/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "lib/unit.h"

TEST(spans_compare_cut_and_trim)
{
    ck_assert(span_eq(SPAN("ab"), SPAN("ab")));
    ck_assert(!span_eq(SPAN("ab"), SPAN("abc")));
    ck_assert(span_eq_nocase(SPAN("Tesla T4"), SPAN("tesla t4")));
    ck_assert(span_starts(SPAN("unhealthy-gpu-n1"), SPAN("unhealthy-gpu-")));
    ck_assert(!span_starts(SPAN("un"), SPAN("unhealthy-gpu-")));
    ck_assert(span_has_only(SPAN("azAZ09-."), "-."));
    ck_assert(!span_has_only(SPAN("a_"), "-.") && !span_has_only(SPAN("\xe9"), ""));
    ck_assert(!span_has_only(SPAN("a\0"), "-."));
    ck_assert_int_lt(span_cmp(SPAN("a"), SPAN("ab")), 0);
    ck_assert_int_gt(span_cmp(SPAN("b"), SPAN("ab")), 0);
    ck_assert_span_eq(span_trim(SPAN(" \t a b \n")), "a b");
    ck_assert_span_eq(span_trim(SPAN("  ")), "");

    struct span rest = SPAN("1,,3");
    ck_assert_span_eq(span_cut(&rest, ','), "1");
    ck_assert_span_eq(span_cut(&rest, ','), "");
    ck_assert_span_eq(span_cut(&rest, ','), "3");
    ck_assert(rest.p == NULL);
}

TEST(a_buffer_grows_and_keeps_its_terminator)
{
    cleanup_buf struct buf b = {0};
    for (int i = 0; i < 1000; i++)
        buf_add_i64(&b, i);
    buf_addc(&b, '|');
    buf_add_i64(&b, INT64_MIN);
    buf_printf(&b, "|%d%s", 7, "x");
    ck_assert_uint_eq(b.n, strlen(b.p));
    ck_assert_str_eq(strchr(b.p, '|'), "|-9223372036854775808|7x");
    buf_clear(&b);
    ck_assert_str_eq(b.p, "");
    buf_add_printable(&b, SPAN("a\x1b[2J\xc2\x9b\xc3\xa4\n\x7f\xc2"));
    ck_assert_str_eq(b.p, "a?[2J?\xc3\xa4???");
}

TEST(an_arena_keeps_addresses_until_reset)
{
    cleanup_arena struct arena a = {0};
    char *first = arena_alloc(&a, 10);
    memcpy(first, "123456789", 10);
    for (int i = 0; i < 1000; i++)
        memset(arena_alloc(&a, 100), i, 100);
    char *large = arena_alloc(&a, 100000);
    memset(large, 1, 100000);
    ck_assert_str_eq(first, "123456789");
    ck_assert_uint_eq((uintptr_t)large % _Alignof(max_align_t), 0);
    arena_reset(&a);
    ck_assert_ptr_eq(arena_alloc(&a, 10), first);
    ck_assert_span_eq(arena_copy(&a, SPAN("xyz")), "xyz");
}
