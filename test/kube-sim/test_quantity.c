/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/mem.h"
#include "lib/unit.h"

static const struct {
    const char *given, *shortest; /* NULL: not a quantity */
} cases[] = {
    {"0", "0"},
    {"-0", "0"},
    {"8", "8"},
    {"+8", "8"},
    {"-8", "-8"},
    {"1000", "1k"},
    {"10000", "10k"},
    {"100000", "100k"},
    {"1000000", "1M"},
    {"1001", "1001"},
    {"8138", "8138"},
    {"20k", "20k"},
    {"1024k", "1024k"},
    {"1500m", "1500m"},
    {"2000m", "2"},
    {"0.5", "500m"},
    {".5", "500m"},
    {"5.", "5"},
    {"0.0001", "100u"},
    {"1n", "1n"},
    {"0.1n", "1n"},
    {"1Ki", "1Ki"},
    {"1024", "1024"},
    {"1024Ki", "1Mi"},
    {"1024Mi", "1Gi"},
    {"1536Mi", "1536Mi"},
    {"0.5Ki", "512"},
    {"1Ei", "1Ei"},
    {"1e3", "1e3"},
    {"1E3", "1e3"},
    {"12e2", "1200"},
    {"1e-3", "1e-3"},
    {"1E", "1E"},
    {"9223372036854775807", "9223372036854775807"},
    {"9223372036854775808", "9223372036854775807"},
    {"99999999999999999999999999999999999999999999", "9223372036854775807"},
    {"1e999", "9223372036854775807"},
    {"1e-999", "1e-9"},
    {".8Ei", "922337203685477580800m"},
    {"-.8Ei", "-922337203685477580800m"},
    {"9223372036854775806.000000001", "9223372036854775806000000001n"},
    {"", NULL},
    {"-", NULL},
    {".", NULL},
    {"x", NULL},
    {"8GB", NULL},
    {"8 Gi", NULL},
    {"1..2", NULL},
    {"1e", NULL},
    {"1e+", NULL},
    {"--1", NULL},
    {"1mi", NULL},
};

START_TEST(quantities_are_normalized)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf out = {0};
        struct quantity q;
        bool good = sim_quantity_parse(span_of(cases[i].given), &q);
        ck_assert_msg(good == (cases[i].shortest != NULL), "\"%s\"", cases[i].given);
        if (!good)
            continue;
        sim_quantity_format(q, &out);
        ck_assert_msg(strcmp(out.p, cases[i].shortest) == 0, "\"%s\" became \"%s\"",
                      cases[i].given, out.p);
    }
}

START_TEST(a_normalized_quantity_parses_to_the_same_amount)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf out = {0};
        struct quantity q, again;
        if (!sim_quantity_parse(span_of(cases[i].given), &q))
            continue;
        sim_quantity_format(q, &out);
        ck_assert(sim_quantity_parse(buf_span(&out), &again));
        ck_assert_msg(sim_quantity_cmp(q, again) == 0, "\"%s\"", cases[i].given);
    }
}

START_TEST(quantities_compare_by_value)
{
    struct quantity a, b;
    ck_assert(sim_quantity_parse(SPAN("1Gi"), &a) && sim_quantity_parse(SPAN("1G"), &b));
    ck_assert_int_gt(sim_quantity_cmp(a, b), 0);
    ck_assert(sim_quantity_parse(SPAN("1k"), &a) && sim_quantity_parse(SPAN("1000"), &b));
    ck_assert_int_eq(sim_quantity_cmp(a, b), 0);
    ck_assert(sim_quantity_parse(SPAN("-1"), &a));
    ck_assert_int_lt(sim_quantity_cmp(a, b), 0);
    ck_assert(sim_quantity_is_whole(a));
    ck_assert(sim_quantity_parse(SPAN("2000m"), &a) && sim_quantity_is_whole(a));
    ck_assert(sim_quantity_parse(SPAN("1500m"), &a) && !sim_quantity_is_whole(a));
}

UNIT_MAIN("quantity", quantities_are_normalized,
          a_normalized_quantity_parses_to_the_same_amount, quantities_compare_by_value)
