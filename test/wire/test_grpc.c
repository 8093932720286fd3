/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpc.h"

#include "base/mem.h"
#include "lib/unit.h"
#include "wire/grpc_priv.h"

START_TEST(every_status_has_a_name_and_a_code)
{
    for (int s = GRPC_OK; s <= GRPC_UNAUTHENTICATED; s++) {
        ck_assert_str_ne(grpc_status_name((enum grpc_status)s), "unknown status");
        ck_assert_int_eq(grpc_status_err((enum grpc_status)s) == ERR_NONE, s == GRPC_OK);
    }
    ck_assert_str_eq(grpc_status_name(GRPC_UNIMPLEMENTED), "UNIMPLEMENTED");
    ck_assert_str_eq(grpc_status_name((enum grpc_status)17), "unknown status");
    ck_assert_int_eq(grpc_status_err((enum grpc_status)17), ERR_INTERNAL);
    for (int code = ERR_NONE; code <= ERR_INTERNAL; code++)
        ck_assert_int_eq(grpc_status_of((enum err_code)code) == GRPC_OK,
                         code == ERR_NONE);
}
END_TEST

START_TEST(grpc_message_is_percent_encoded)
{
    static const struct {
        const char *words, *wire;
    } cases[] = {
        {"card 3 is full", "card 3 is full"},
        {"100%", "100%25"},
        {"gr\xc3\xbc\xc3\x9f", "gr%C3%BC%C3%9F"},
        {"", ""},
        {"a~ b", "a~ b"},
    };
    static const char *const others[][2] = {
        {"%4", "%4"},
        {"%", "%"},
        {"%zz%41", "%zzA"},
        {"%c3%bc", "\xc3\xbc"},
        {"%%34", "%4"},
        {"a%0Awatch: ok%ff\x7f", "a?watch: ok??"}}; /* nothing forges a line */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf wire = {0}, words = {0};
        grpc_percent_encode(&wire, span_of(cases[i].words));
        ck_assert_span_eq(buf_span(&wire), cases[i].wire);
        grpc_percent_decode(&words, buf_span(&wire));
        ck_assert_span_eq(buf_span(&words), cases[i].words);
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        cleanup_buf struct buf words = {0};
        grpc_percent_decode(&words, span_of(others[i][0]));
        ck_assert_span_eq(buf_span(&words), others[i][1]);
    }
}
END_TEST

START_TEST(timeouts)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"1S", 1000},      {"10000m", 10000}, {"99999999H", INT64_C(359999996400000)},
        {"2M", 120000},    {"1u", 1},         {"1n", 1},
        {"1000001n", 2},   {"0m", 0},         {"00000005m", 5},
        {"99999999n", 100}};
    static const char *const bad[] = {"",    "5",   "m",   "1x",         "-1S",
                                      " 1S", "1 S", "1Sm", "100000000S", "1.5S"};
    int64_t ms;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        ck_assert_msg(grpc_timeout_parse(span_of(good[i].text), &ms), "%s", good[i].text);
        ck_assert_int_eq(ms, good[i].ms);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        ck_assert_msg(!grpc_timeout_parse(span_of(bad[i]), &ms), "%s", bad[i]);
}
END_TEST

UNIT_MAIN("grpc", every_status_has_a_name_and_a_code, grpc_message_is_percent_encoded,
          timeouts)
