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

START_TEST(a_message_follows_its_prefix)
{
    static const struct {
        struct span in;
        enum grpc_read got;
        const char *message;
    } cases[] = {
        {SPAN("\0\0\0\0\3abc\0"), GRPC_READ_MESSAGE, "abc"},
        {SPAN("\0\0\0\0\0"), GRPC_READ_MESSAGE, ""},
        {SPAN("\0\0\0\0\3ab"), GRPC_READ_MORE, NULL},
        {SPAN("\1\0\0\0"), GRPC_READ_MORE, NULL},
        {SPAN("\0\0\0\0\4"), GRPC_READ_INVALID, NULL},
        {SPAN("\0\xff\xff\xff\xff"), GRPC_READ_INVALID, NULL},
        {SPAN("\1\0\0\0\1"), GRPC_READ_INVALID, NULL},
        {SPAN("\2\0\0\0\1"), GRPC_READ_INVALID, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct span message = {0};
        ck_assert_int_eq(grpc_message_read(cases[i].in, 3, &message, NULL, NULL),
                         cases[i].got);
        if (cases[i].message)
            ck_assert_span_eq(message, cases[i].message);
    }
    cleanup_buf struct buf out = {0};
    char bytes[70000] = {0};
    struct span got;
    grpc_message_add(&out, (struct span){bytes, sizeof bytes});
    ck_assert_int_eq(grpc_message_read(buf_span(&out), sizeof bytes, &got, NULL, NULL),
                     GRPC_READ_MESSAGE);
    ck_assert_uint_eq(got.n, sizeof bytes);
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
        {"%4", "%4"}, {"%", "%"}, {"%zz%41", "%zzA"}, {"%c3%bc", "\xc3\xbc"}, {"%%34", "%4"}};
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

START_TEST(a_socket_path_has_at_most_107_bytes)
{
    char path[GRPC_PATH_MAX + 2];
    struct sockaddr_un addr;
    struct err err = {0};
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    ck_assert(!grpc_address(path, &addr, &err));
    ck_assert_int_eq(err.code, ERR_INVALID);
    ck_assert_msg(strstr(err.msg, "socket path has 108 bytes, expected 1 to 107") != NULL,
                  "%s", err.msg);
    path[GRPC_PATH_MAX] = '\0';
    ck_assert(grpc_address(path, &addr, &err));
    ck_assert_str_eq(addr.sun_path, path);
    ck_assert(!grpc_address("", &addr, &err));
}
END_TEST

UNIT_MAIN("grpc", every_status_has_a_name_and_a_code, a_message_follows_its_prefix, grpc_message_is_percent_encoded,
          timeouts,
          a_socket_path_has_at_most_107_bytes)
