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
    array_items(c, cases) {
        int64_t v = -1;
        struct err err = {0};
        ck_assert_done(quantity_read(span_of(c->text), &v, &err), err);
        ck_assert_msg(v == c->value, "%s is %lld", c->text, (long long)v);
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
    array_items(c, cases) {
        int64_t v = -7;
        struct err err = {0};
        ck_assert_msg(quantity_read(span_of(*c), &v, &err) == -1, "%s", *c);
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
    array_items(c, cases)
        ck_assert_msg(quantity_milli(span_of(c->text), INT64_MAX) == c->value, "%s",
                      c->text);
    static const char *const larger[] = {"1001m", "9E", "9223372036854775807",
                                         "-1",    "x",  ""};
    array_items(p, larger)
        ck_assert_int_eq(quantity_milli(span_of(*p), 1000), 1000);
}

TEST(units_are_read_and_written)
{
    static const struct {
        const char *text;
        int64_t mib;
    } cases[] = {{"GiB", 1024}, {"MiB", 1}, {"256MiB", 256}};
    array_items(c, cases) {
        int64_t mib = 0;
        cleanup_buf struct buf b = {0};
        ck_assert_int_eq(quantity_read_unit(span_of(c->text), &mib, NULL), 0);
        ck_assert_int_eq(mib, c->mib);
        quantity_write_unit(&b, mib);
        ck_assert_str_eq(b.p, c->text);
    }
    static const char *const wrong[] = {"",    "GB",     "0MiB",       "-1MiB",
                                        "gib", "1.5MiB", "99999999MiB"};
    array_items(x, wrong) {
        int64_t mib;
        ck_assert_msg(quantity_read_unit(span_of(*x), &mib, NULL) == -1, "%s", *x);
    }
}
