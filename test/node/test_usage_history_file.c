/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/rng.h"
#include "lib/unit.h"
#include "node/usage_taken.h"

/* The history over a restart of scv-agent, and over a boot of the node. */

#define HOUR   ((int64_t)USAGE_HISTORY_HOUR_MS)
#define MINUTE (HOUR / 60)
#define WALL   (INT64_C(490000) * HOUR)

static struct usage_history *history, *next;
static const struct span node = SPAN("n1");

static void take(struct usage_history *h, int64_t ms, const char *pod, int64_t used)
{
    static const struct usage_card card = {.total_mib = 16000, .complete = true};
    usage_taken(h, ms, &card, "ns", pod, used);
}

/* Lets time pass without a container. */
static void pass(struct usage_history *h, int64_t ms)
{
    usage_history_take(h, ms, &(struct usage){.taken_ms = ms});
}

static void begin(void)
{
    history = usage_history_new();
    next = usage_history_new();
}

static void end(void)
{
    usage_history_free(history);
    usage_history_free(next);
}

static int read_text(const char *text, int64_t now_ms, int64_t wall_ms, struct err *err)
{
    return usage_history_read(next, span_of(text), node, now_ms, wall_ms, err);
}

/* From `history`, at these times, to `next`. */
static void hand_over(int64_t now_ms, int64_t wall_ms, int64_t next_ms, int64_t next_wall)
{
    cleanup_buf struct buf text = {0};
    struct err err = {0};
    usage_history_write(history, node, now_ms, wall_ms, &text);
    ck_assert_msg(read_text(text.p, next_ms, next_wall, &err) == 0, "%s", err.msg);
}

static void ck_row(size_t i, const char *name, int64_t max, int64_t hours, int64_t age)
{
    struct usage_history_row row = usage_history_row(next, i);
    ck_assert_span_eq(row.ns, "ns");
    ck_assert_span_eq(row.name, name);
    ck_assert_span_eq(row.container, "c");
    ck_assert_int_eq(row.promised_mib, 4000);
    ck_assert_int_eq(row.max_mib, max);
    ck_assert_int_eq(row.hours, hours);
    ck_assert_int_eq(row.age_hours, age);
}

START_TEST(a_restart_continues)
{
    take(history, 10 * HOUR, "web-7d9c5b8f6-x2k4q", 300);
    take(history, 12 * HOUR, "web-7d9c5b8f6-x2k4q", 200);
    take(history, 12 * HOUR, "train", 50);
    hand_over(12 * HOUR, WALL, 12 * HOUR + 5000, WALL + 5000);
    ck_assert_uint_eq(usage_history_count(next), 2);
    ck_row(0, "web", 300, 2, 2);
    ck_assert_str_eq(usage_history_row(next, 0).kind, "Deployment");
    ck_row(1, "train", 50, 1, 0);
    take(next, 13 * HOUR, "web-7d9c5b8f6-x2k4q", 400);
    ck_row(0, "web", 400, 3, 3);
    take(next, 13 * HOUR + 1, "web-7d9c5b8f6-x2k4q", 1); /* the hour has a mark */
    ck_row(0, "web", 400, 3, 3);
}
END_TEST

/* The monotonic clock begins again, before the hours of the marks. */
START_TEST(a_boot_of_the_node_continues)
{
    for (int hour = 0; hour < 20; hour++)
        take(history, (1000 + hour) * HOUR, "train", 100 + hour);
    hand_over(1019 * HOUR, WALL, 60 * 1000, WALL + 3 * HOUR);
    ck_row(0, "train", 119, 20, 22);
    pass(next, (USAGE_HISTORY_HOURS - 22) * HOUR); /* the first three have passed */
    ck_row(0, "train", 119, 19, USAGE_HISTORY_HOURS - 1);
    pass(next, USAGE_HISTORY_HOURS * HOUR);
    ck_assert_uint_eq(usage_history_count(next), 0);
}
END_TEST

START_TEST(old_marks_are_dropped)
{
    take(history, 0, "old", 7);
    take(history, 100 * HOUR, "new", 8);
    hand_over(100 * HOUR, WALL, 5, WALL + 100 * HOUR);
    ck_assert_uint_eq(usage_history_count(next), 1);
    ck_row(0, "new", 8, 1, 100);
    hand_over(100 * HOUR, WALL, 5, WALL + 168 * HOUR);
    ck_assert_uint_eq(usage_history_count(next), 0);
}
END_TEST

/* A wall clock that went back does not make marks younger than now. */
START_TEST(a_wall_clock_that_went_back)
{
    take(history, 5 * HOUR, "train", 7);
    take(history, 8 * HOUR, "train", 9);
    hand_over(8 * HOUR, WALL, 5, WALL - 1000 * HOUR);
    ck_row(0, "train", 9, 2, 3);
}
END_TEST

/* An hour of the monotonic clock begins at any minute of the wall clock. */
START_TEST(the_hours_of_the_two_clocks_differ)
{
    for (int64_t phase = 0; phase < 60; phase += 5) {
        cleanup_buf struct buf first = {0};
        int64_t wall = WALL - 10 * HOUR + phase * MINUTE;
        end();
        begin();
        take(history, 10 * HOUR, "train", 7);
        usage_history_write(history, node, 10 * HOUR, wall + 10 * HOUR, &first);
        for (int64_t ms = 10 * HOUR; ms < 11 * HOUR; ms += 7 * MINUTE) {
            cleanup_buf struct buf text = {0}, again = {0};
            usage_history_write(history, node, ms, wall + ms, &text);
            ck_assert_str_eq(text.p, first.p);
            hand_over(10 * HOUR, wall + 10 * HOUR, ms, wall + ms);
            ck_row(0, "train", 7, 1, 0);
            usage_history_write(next, node, ms, wall + ms, &again);
            ck_assert_str_eq(again.p, first.p);
            hand_over(ms, wall + ms, ms + HOUR, wall + ms + HOUR);
            ck_row(0, "train", 7, 1, 1);
        }
    }
}
END_TEST

START_TEST(other_files_are_rejected)
{
    static const struct {
        const char *text, *why;
        enum err_code code;
    } files[] = {
        {"", "invalid JSON", ERR_INVALID},
        {"{\"version\":1,\"node\":\"n1\",\"workloads\":[", "unexpected end", ERR_INVALID},
        {"[]", "usage", ERR_INVALID},
        {"{\"version\":2,\"node\":\"n1\",\"workloads\":[]}", "version: 2", ERR_INVALID},
        {"{\"node\":\"n1\",\"workloads\":[]}", "version: 0", ERR_INVALID},
        {"{\"version\":1,\"node\":\"n2\"}", "node \"n2\"", ERR_CONFLICT},
    };
    take(next, 0, "kept", 1);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct err err = {0};
        ck_assert_int_eq(read_text(files[i].text, 0, WALL, &err), -1);
        ck_assert_int_eq(err.code, files[i].code);
        ck_assert_msg(strstr(err.msg, files[i].why) != NULL, "%s", err.msg);
    }
    ck_assert_uint_eq(usage_history_count(next), 1);
}
END_TEST

/* One workload that cannot be read does not lose the others. */
START_TEST(damaged_workloads_are_left_out)
{
#define W(name, rest)                                                                    \
    "{\"namespace\":\"ns\",\"kind\":\"Pod\",\"name\":\"" name "\",\"container\":\"c\","  \
    "\"promised\":4000," rest "}"
    static const char text[] = "{\"version\":1,\"node\":\"n1\",\"workloads\":[" W(
        "good", "\"hour\":490000,\"marks\":[1,-1,3,-7,99999999999]") "," //
        W("good", "\"hour\":490000,\"marks\":[8]") ","                   //
        W("no-marks", "\"hour\":490000,\"marks\":[]") ","                //
        W("type", "\"hour\":\"x\",\"marks\":[1]") ","                    //
        W("marks", "\"hour\":490000,\"marks\":[1,\"2\"]") ","            //
        W("early", "\"hour\":-5,\"marks\":[1]") ","                      //
        W("first", "\"hour\":-9223372036854775808,\"marks\":[1]") ","    //
        W("a/b", "\"hour\":490000,\"marks\":[1]") ","                    //
        W("", "\"hour\":490000,\"marks\":[1]") ","                       //
        W("late",
          "\"hour\":9223372036854775807,\"marks\":[2]") ",7,null,"
                                                        "{\"kind\":\"Nothing\",\"hour\":"
                                                        "490000,\"marks\":[1]}]}";
    struct err err = {0};
    ck_assert_msg(read_text(text, 0, WALL, &err) == 0, "%s", err.msg);
    ck_assert_uint_eq(usage_history_count(next), 2);
    ck_row(0, "good", 3, 2, 2);
    ck_row(1, "late", 2, 1, 0);
}
END_TEST

static void random_history(struct rng *rng, int64_t now_hour)
{
    for (int i = 0; i < 2000; i++) {
        cleanup_free char *pod = xasprintf("p%da", (int)rng_below(rng, 200));
        int64_t hour = now_hour - 180 + i * 180 / 2000;
        take(history, hour * HOUR, pod, (int64_t)rng_below(rng, 10000));
    }
}

START_TEST(nothing_is_lost_on_the_way)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng rng;
        cleanup_buf struct buf text = {0}, again = {0};
        rng_init(&rng, seed);
        end();
        begin();
        random_history(&rng, 500);
        usage_history_write(history, node, 500 * HOUR, WALL, &text);
        ck_assert_uint_lt(text.n, USAGE_HISTORY_FILE_MAX);
        struct err err = {0};
        ck_assert_msg(read_text(text.p, 3 * HOUR, WALL, &err) == 0, "%s", err.msg);
        ck_assert_uint_eq(usage_history_count(next), usage_history_count(history));
        usage_history_write(next, node, 3 * HOUR, WALL, &again);
        ck_assert_str_eq(text.p, again.p);
        for (size_t i = 0; i < usage_history_count(next); i++) {
            struct usage_history_row a = usage_history_row(history, i),
                                     b = usage_history_row(next, i);
            ck_assert(span_eq(a.name, b.name));
            ck_assert_int_eq(a.p95_mib, b.p95_mib);
            ck_assert_int_eq(a.max_mib, b.max_mib);
            ck_assert_int_eq(a.hours, b.hours);
        }
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_restart_continues,
                                  a_boot_of_the_node_continues,
                                  old_marks_are_dropped,
                                  a_wall_clock_that_went_back,
                                  the_hours_of_the_two_clocks_differ,
                                  other_files_are_rejected,
                                  damaged_workloads_are_left_out,
                                  nothing_is_lost_on_the_way};
    const struct unit_fixtures around = {.begin = begin, .end = end};
    return unit_run_with("usage_history_file", tests, ARRAY_LEN(tests), 60, &around);
}
