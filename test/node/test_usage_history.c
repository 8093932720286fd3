/* SPDX-License-Identifier: Apache-2.0 */
#include "node/usage_history.h"

#include "base/mem.h"
#include "base/rng.h"
#include "lib/unit.h"
#include "node/usage_taken.h"
#include "node/workload.h"

/* -- names -- */

static const struct name {
    const char *pod, *workload;
} names[] = {
    {"web-7d9c5b8f6-x2k4q", "Deployment/web"},
    {"web-server-5f67894bb-zz2xw", "Deployment/web-server"},
    {"nightly-28390230-x2k4q", "CronJob/nightly"},
    {"db-0", "StatefulSet/db"},
    {"db-12", "StatefulSet/db"},
    {"node-exporter-x2k4q", "Controller/node-exporter"},
    {"train", "Pod/train"},
    {"my-model", "Pod/my-model"}, /* has vowels */
    {"db-012", "Pod/db-012"},     /* no ordinal */
    {"-x2k4q", "Pod/-x2k4q"},
    {"a--x2k4q", "Controller/a-"},
    {"", "Pod/"},
    {"run-22222", "Controller/run"},
};

START_TEST(the_workload_follows_from_the_name_of_the_pod)
{
    struct workload w = workload_of(span_of(names[_i].pod));
    cleanup_buf struct buf got = {0};
    buf_printf(&got, "%s/", w.kind);
    buf_add_span(&got, w.name);
    ck_assert_str_eq(got.p, names[_i].workload);
}

/* -- marks -- */

static struct usage_history *history;
static struct usage_card card = {.total_mib = 16000, .complete = true};

static void take_at(int64_t ms, const char *ns, const char *pod, int64_t used)
{
    usage_taken(history, ms, &card, ns, pod, used);
}

static void take(int64_t hour, const char *pod, int64_t used)
{
    take_at(hour * USAGE_HISTORY_HOUR_MS, "ns", pod, used);
}

static void ck_row(size_t i, int64_t p95, int64_t max, int64_t hours, int64_t age)
{
    struct usage_history_row row = usage_history_row(history, i);
    ck_assert_int_eq(row.promised_mib, 4000);
    ck_assert_int_eq(row.p95_mib, p95);
    ck_assert_int_eq(row.max_mib, max);
    ck_assert_int_eq(row.hours, hours);
    ck_assert_int_eq(row.age_hours, age);
}

START_TEST(the_pods_of_a_workload_count_together)
{
    history = usage_history_new();
    take(1, "web-7d9c5b8f6-x2k4q", 100);
    take(1, "web-7d9c5b8f6-b2k4q", 300);
    take(1, "web-6d9c5b8f6-b2k4q", 200);
    ck_assert_uint_eq(usage_history_count(history), 1);
    ck_row(0, 300, 300, 1, 0);
    struct usage_history_row row = usage_history_row(history, 0);
    ck_assert_str_eq(row.kind, "Deployment");
    ck_assert_span_eq(row.name, "web");
    usage_history_free(history);
}

START_TEST(p95_is_of_the_marks_of_the_hours)
{
    history = usage_history_new();
    for (int64_t hour = 1; hour <= 100; hour++) {
        take(hour, "p", hour);
        take(hour, "p", 1); /* no mark: the hour has a higher one */
    }
    ck_row(0, 95, 100, 100, 99);
    usage_history_free(history);
}

START_TEST(marks_are_dropped_after_seven_days)
{
    history = usage_history_new();
    take(1, "p", 9000);
    take(3, "p", 100);
    take(USAGE_HISTORY_HOURS, "p", 200);
    ck_row(0, 9000, 9000, 3, USAGE_HISTORY_HOURS - 1);
    take(USAGE_HISTORY_HOURS + 1, "p", 200);
    ck_row(0, 200, 200, 3, USAGE_HISTORY_HOURS - 2);
    take(USAGE_HISTORY_HOURS + 1, "q", 1); /* the other workload does not run any more */
    take(3 * USAGE_HISTORY_HOURS, "q", 1);
    ck_assert_uint_eq(usage_history_count(history), 1);
    ck_row(0, 1, 1, 1, 0);
    usage_history_free(history);
}

START_TEST(a_clock_that_goes_back_adds_to_the_last_hour)
{
    history = usage_history_new();
    take(50, "p", 100);
    take(20, "p", 300);
    ck_row(0, 300, 300, 1, 0);
    usage_history_free(history);
}

START_TEST(what_is_not_known_is_no_mark)
{
    history = usage_history_new();
    take(1, "p", -1);
    take(1, "", 100);
    card.complete = false;
    take(1, "p", 100);
    card.complete = true;
    ck_assert_uint_eq(usage_history_count(history), 0);
    usage_history_free(history);
}

/* -- many workloads -- */

static size_t count_of(const char *ns)
{
    size_t n = 0;
    for (size_t i = 0; i < usage_history_count(history); i++)
        n += span_eq(usage_history_row(history, i).ns, span_of(ns));
    return n;
}

START_TEST(a_tenant_with_ever_new_names_displaces_only_himself)
{
    history = usage_history_new();
    for (int i = 0; i < 20; i++) {
        cleanup_free char *pod = xasprintf("good%da", i);
        take_at(i, "good", pod, 100);
    }
    for (int i = 0; i < 1000; i++) {
        cleanup_free char *pod = xasprintf("bad%da", i);
        take_at(1000 + i, "bad", pod, 100);
    }
    ck_assert_uint_eq(usage_history_count(history), USAGE_HISTORY_MAX);
    ck_assert_uint_eq(count_of("good"), 20);
    ck_assert_uint_eq(count_of("bad"), USAGE_HISTORY_MAX - 20);
    /* The good one grows to an equal share at the cost of the other. */
    for (int i = 20; i < 200; i++) {
        cleanup_free char *pod = xasprintf("good%da", i);
        take_at(3000 + i, "good", pod, 100);
    }
    ck_assert_uint_eq(count_of("good"), USAGE_HISTORY_MAX / 2);
    usage_history_free(history);
}

START_TEST(rows_are_in_order_and_the_newest_stay)
{
    struct rng rng;
    rng_init(&rng, 1);
    history = usage_history_new();
    for (int i = 0; i < 5000; i++) {
        cleanup_free char *ns = xasprintf("ns%d", (int)rng_below(&rng, 9));
        cleanup_free char *pod = xasprintf("p%da", (int)rng_below(&rng, 500));
        take_at(i, ns, pod, 1);
        bool found = false;
        for (size_t k = 0; k < usage_history_count(history); k++) {
            struct usage_history_row row = usage_history_row(history, k);
            found |= span_eq(row.ns, span_of(ns)) && span_eq(row.name, span_of(pod));
            if (!k)
                continue;
            struct usage_history_row last = usage_history_row(history, k - 1);
            int order = span_cmp(last.ns, row.ns);
            ck_assert(order < 0 || (order == 0 && span_cmp(last.name, row.name) < 0));
        }
        ck_assert_msg(found, "%s/%s is missing", ns, pod);
    }
    usage_history_free(history);
}

int main(void)
{
    const struct unit_loop tests[] = {
        {the_workload_follows_from_the_name_of_the_pod, (int)ARRAY_LEN(names)},
        {the_pods_of_a_workload_count_together, 1},
        {p95_is_of_the_marks_of_the_hours, 1},
        {marks_are_dropped_after_seven_days, 1},
        {a_clock_that_goes_back_adds_to_the_last_hour, 1},
        {what_is_not_known_is_no_mark, 1},
        {a_tenant_with_ever_new_names_displaces_only_himself, 1},
        {rows_are_in_order_and_the_newest_stay, 1},
    };
    return unit_run_loops("usage_history", tests, ARRAY_LEN(tests), 60);
}
