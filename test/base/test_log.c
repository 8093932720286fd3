/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "lib/unit.h"

START_TEST(a_line_is_logfmt_with_quotes_where_needed)
{
    cleanup_buf struct buf b = {0};
    const struct log_field fields[] = {LOG_S("kind", "pods"),      LOG_I("n", -4),
                                       LOG_S("why", "a \"b\"\nc"), LOG_S("none", ""),
                                       LOG_S("null", NULL),        {0}};
    log_format(&b, 1599306468007, LOG_WARN, "watch", "list done", fields);
    ck_assert_str_eq(b.p, "time=2020-09-05T11:47:48.007Z level=warn module=watch "
                          "msg=\"list done\" kind=pods n=-4 why=\"a \\\"b\\\"\\nc\" "
                          "none=\"\" null=\"\"");
}
END_TEST

START_TEST(levels_are_named_and_filtered)
{
    enum log_level level = LOG_ERROR;
    struct err err = {0};
    ck_assert_done(log_level_parse(SPAN("Debug"), &level, &err), err);
    ck_assert_int_eq(level, LOG_DEBUG);
    ck_assert_int_eq(log_level_parse(SPAN("loud"), &level, &err), -1);
    ck_assert_str_eq(err.msg, "\"loud\" is none of error, warn, info, debug");
    log_set_level(LOG_WARN);
    ck_assert(log_enabled(LOG_ERROR) && log_enabled(LOG_WARN) && !log_enabled(LOG_INFO));
}
END_TEST

START_TEST(errors_are_wrapped_and_truncated)
{
    struct err err = {0};
    ck_assert_int_eq(err_set(&err, ERR_CONFLICT, "taken by %s", "n1"), -1);
    err_wrap(&err, "bind default/p%d", 1);
    ck_assert_str_eq(err.msg, "bind default/p1: taken by n1");
    ck_assert_int_eq(err.code, ERR_CONFLICT);
    ck_assert_uint_eq(err_http_status(err.code), 409);
    ck_assert_str_eq(err_code_name(err.code), "conflict");
    for (int i = 0; i < 100; i++)
        err_wrap(&err, "a longer and longer message");
    ck_assert_uint_lt(strlen(err.msg), sizeof err.msg);
    ck_assert_int_eq(err_set(NULL, ERR_INVALID, "nobody listens"), -1);
}
END_TEST

UNIT_MAIN("log", a_line_is_logfmt_with_quotes_where_needed, levels_are_named_and_filtered,
          errors_are_wrapped_and_truncated)
