/* SPDX-License-Identifier: Apache-2.0 */
#include "base/step.h"

#include "lib/unit.h"

struct item {
    int number;
    const char *text;
};

TEST(outputs_keep_their_order_and_their_strings)
{
    struct step_outputs out = {0};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 100; i++) {
            const char *text = step_printf(&out, "item %d", i);
            struct item *o = step_add(&out, sizeof *o);
            ck_assert_ptr_null(o->text); /* zeroed, also after a reset */
            *o = (struct item){i, text};
        }
        step_log(&out, LOG_WARN, "test", ERR_CONFLICT, "line %d", round);
        const struct item *items = out.items;
        ck_assert_uint_eq(out.n, 100);
        for (int i = 0; i < 100; i++) {
            char text[32];
            snprintf(text, sizeof text, "item %d", i);
            ck_assert_int_eq(items[i].number, i);
            ck_assert_str_eq(items[i].text, text);
        }
        ck_assert_uint_eq(out.n_lines, 1);
        ck_assert_str_eq(out.lines[0].text, round ? "line 1" : "line 0");
        ck_assert_int_eq(out.lines[0].code, ERR_CONFLICT);
        ck_assert_str_eq(step_text(&out, SPAN("text")), "text");
        step_outputs_reset(&out);
        ck_assert_uint_eq(out.n + out.n_lines, 0);
    }
    step_outputs_fini(&out);
}

TEST(backoff_doubles_up_to_its_limit)
{
    struct rng rng;
    rng_init(&rng, 1);
    const int64_t most[] = {500, 500, 1000, 2000, 4000, 8000, 15000, 15000};
    for (unsigned failures = 0; failures < ARRAY_LEN(most); failures++) {
        int64_t low = INT64_MAX, high = 0;
        for (int i = 0; i < 1000; i++) {
            int64_t ms = step_backoff(&rng, failures, 500, 15000, -1);
            low = ms < low ? ms : low;
            high = ms > high ? ms : high;
        }
        ck_assert_int_ge(low, most[failures] / 2);
        ck_assert_int_le(low, most[failures] * 6 / 10);
        ck_assert_int_le(high, most[failures]);
        ck_assert_int_ge(high, most[failures] * 9 / 10);
    }
    ck_assert_int_le(step_backoff(&rng, UINT32_MAX, 500, 15000, -1), 15000);
    ck_assert_int_eq(step_backoff(&rng, 1, 500, 15000, 60000), 60000);
}

TEST(a_failure_is_logged_when_new_and_each_minute)
{
    struct step_failure f = {0};
    struct err timeout = {ERR_TIMEOUT, "no answer"}, conflict = {ERR_CONFLICT, "changed"};
    ck_assert(!step_succeeded(&f));
    ck_assert(step_failed(&f, 1000, &timeout));
    ck_assert(!step_failed(&f, 2000, &timeout));
    ck_assert(step_failed(&f, 3000, &conflict));
    ck_assert(!step_failed(&f, 62999, &conflict));
    ck_assert(step_failed(&f, 63000, &conflict));
    ck_assert_uint_eq(f.failures, 5);
    ck_assert_int_eq(f.since_ms, 1000);
    ck_assert_str_eq(f.err.msg, "changed");
    ck_assert(step_succeeded(&f));
    ck_assert(!step_succeeded(&f));
    ck_assert(step_failed(&f, 63001, &conflict));
    int64_t due = 10;
    step_due(&due, 11);
    ck_assert_int_eq(due, 10);
    step_due(&due, 9);
    ck_assert_int_eq(due, 9);
}
