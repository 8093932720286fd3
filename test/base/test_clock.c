/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "lib/unit.h"

TEST(times_are_written_as_kubernetes_writes_them)
{
    cleanup_buf struct buf b = {0};
    clock_format_s(&b, 1599306468);
    buf_addc(&b, ' ');
    clock_format_ms(&b, 1599306468007);
    buf_addc(&b, ' ');
    clock_format_us(&b, 1599306468000042);
    ck_assert_str_eq(b.p, "2020-09-05T11:47:48Z 2020-09-05T11:47:48.007Z "
                          "2020-09-05T11:47:48.000042Z");
}

TEST(times_are_read_with_fraction_and_offset)
{
    static const char *const same[] = {
        "2020-09-05T11:47:48Z", "2020-09-05T11:47:48.999999Z",
        "2020-09-05T13:47:48+02:00", "2020-09-05T06:17:48-05:30"};
    static const char *const wrong[] = {"",
                                        "2020-09-05",
                                        "2020-09-05T11:47:48",
                                        "2020-13-05T11:47:48Z",
                                        "2020-09-05T11:47:48.Z",
                                        "2020-09-05T11:47:48Zx",
                                        "2020-09-05T11:47:48+2:00",
                                        "2020-09-05T-1:47:48Z"};
    int64_t t = 0;
    array_items(c, same) {
        ck_assert_msg(clock_parse(span_of(*c), &t), "%s", *c);
        ck_assert_int_eq(t, 1599306468);
    }
    array_items(p, wrong)
        ck_assert_msg(!clock_parse(span_of(*p), &t), "%s", *p);
}
