/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/quantity.h"

#include "lib/unit.h"

TEST(whole_numbers_are_read_in_every_form)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        {"0", 0},
        {"8138", 8138},
        {"16k", 16000},
        {"1.5k", 1500},
        {"2Ki", 2048},
        {"1e3", 1000},
        {"1E3", 1000},
        {"1E", 1000000000000000000},
        {"3000m", 3},
        {"1.0", 1},
        {"+7", 7},
        {"0.5Ki", 512},
        {"5e-0", 5},
        {"1e+2", 100},
        {"0E", 0},
        {"2000e-3", 2},
        {"1.", 1},
        {".5k", 500},
        {"9223372036854775807", INT64_MAX},
        {"4Ei", 4611686018427387904},
    };
    ARRAY_EACH(i, cases) {
        int64_t v = -1;
        struct err err = {0};
        ck_assert_done(quantity_read(span_of(cases[i].text), &v, &err), err);
        ck_assert_msg(v == cases[i].value, "%s is %lld", cases[i].text, (long long)v);
    }
}

TEST(other_values_than_whole_numbers_are_rejected)
{
    static const char *const cases[] = {"",
                                        "x",
                                        "-1",
                                        "1.5",
                                        "100m",
                                        "1n",
                                        "8 ",
                                        " 8",
                                        "8Gi ",
                                        "1e",
                                        "1e99",
                                        "0x10",
                                        "9223372036854775808",
                                        "16Ei",
                                        "1.2.3",
                                        ".",
                                        "+",
                                        "k",
                                        "1kk",
                                        "1KI",
                                        "--1"};
    ARRAY_EACH(i, cases) {
        int64_t v = -7;
        struct err err = {0};
        ck_assert_msg(quantity_read(span_of(cases[i]), &v, &err) == -1, "%s", cases[i]);
        ck_assert_int_eq(v, -7);
        ck_assert_int_eq(err.code, ERR_INVALID);
    }
}

TEST(thousandths_are_rounded_up)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"1", 1000},        {"250m", 250},     {"0.1", 100}, {"1.5", 1500},
                 {"100u", 1},        {"1n", 1},         {"0", 0},     {"2k", 2000000},
                 {"1.5Ki", 1536000}, {"0.0001Ki", 103}, {"1e-1", 100}};
    ARRAY_EACH(i, cases)
        ck_assert_msg(quantity_milli(span_of(cases[i].text), INT64_MAX) == cases[i].value,
                      "%s", cases[i].text);
    static const char *const larger[] = {"1001m", "9E", "9223372036854775807",
                                         "-1",    "x",  ""};
    ARRAY_EACH(i, larger)
        ck_assert_int_eq(quantity_milli(span_of(larger[i]), 1000), 1000);
}

TEST(units_are_read_and_written)
{
    static const struct {
        const char *text;
        int64_t mib;
    } cases[] = {{"GiB", 1024}, {"MiB", 1}, {"256MiB", 256}};
    ARRAY_EACH(i, cases) {
        int64_t mib = 0;
        cleanup_buf struct buf b = {0};
        ck_assert_int_eq(quantity_read_unit(span_of(cases[i].text), &mib, NULL), 0);
        ck_assert_int_eq(mib, cases[i].mib);
        quantity_write_unit(&b, mib);
        ck_assert_str_eq(b.p, cases[i].text);
    }
    static const char *const wrong[] = {"",    "GB",     "0MiB",       "-1MiB",
                                        "gib", "1.5MiB", "99999999MiB"};
    ARRAY_EACH(i, wrong) {
        int64_t mib;
        ck_assert_msg(quantity_read_unit(span_of(wrong[i]), &mib, NULL) == -1, "%s",
                      wrong[i]);
    }
}
