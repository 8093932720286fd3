/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/usage_file.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "lib/temp.h"
#include "lib/unit.h"

/* What workloads used, from one scv-agent to the next. */

static char *dir, *path;
static struct usage_file *file;
static struct usage_history *history;

static void take(const char *pod, int64_t used)
{
    static const struct usage_card card = {.total_mib = 16000, .complete = true};
    const struct usage_container c = {.pod_uid = SPAN("u"),
                                      .ns = SPAN("ns"),
                                      .pod = span_of(pod),
                                      .name = SPAN("c"),
                                      .used_mib = used};
    const struct usage u = {
        .cards = &card, .n_cards = 1, .containers = &c, .n_containers = 1};
    usage_history_take(history, clock_mono_ms(), &u);
}

static void start(void)
{
    history = usage_history_new();
    file = usage_file_open(path, "n1", history);
}

static void stop(void)
{
    ck_assert(usage_file_stop(file, INT64_MAX));
    usage_file_close(file, history);
    usage_history_free(history);
}

static void begin(void)
{
    dir = temp_dir();
    path = temp_path(dir, "usage.json");
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
    free(path);
}

static bool file_has(const char *part)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    return file_read(path, 1 << 20, &text, &err) == 0 && strstr(text.p, part);
}

START_TEST(the_next_process_continues)
{
    start();
    ck_assert_uint_eq(usage_history_count(history), 0);
    take("train", 300);
    stop();
    start();
    ck_assert_uint_eq(usage_history_count(history), 1);
    struct usage_history_row row = usage_history_row(history, 0);
    ck_assert_span_eq(row.name, "train");
    ck_assert_int_eq(row.max_mib, 300);
    stop();
}
END_TEST

START_TEST(it_is_written_while_the_process_runs_but_not_always)
{
    start();
    int64_t now_ms = clock_mono_ms();
    take("train", 300);
    usage_file_take(file, now_ms, history);
    usage_file_take(file, now_ms + USAGE_FILE_MS + 60000, history);
    for (int i = 0; !file_has("train"); i++) {
        ck_assert_int_lt(i, 60000);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    take("other", 1);
    usage_file_take(file, now_ms + USAGE_FILE_MS + 61000, history); /* too early */
    ck_assert(usage_file_stop(file, INT64_MAX));
    ck_assert(!file_has("other"));
    usage_file_close(file, history);
    ck_assert(file_has("other")); /* the end writes what is new */
    usage_history_free(history);
}
END_TEST

START_TEST(nothing_new_is_not_written)
{
    start();
    take("train", 300);
    stop();
    ck_assert(file_has("train"));
    start();
    temp_remove(dir, "usage.json");
    stop();
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

START_TEST(a_damaged_file_is_replaced)
{
    temp_write(dir, "usage.json", "{\"version\":1,");
    start();
    ck_assert_uint_eq(usage_history_count(history), 0);
    take("train", 300);
    stop();
    ck_assert(file_has("train"));
}
END_TEST

START_TEST(a_text_that_waits_at_the_stop_is_written)
{
    for (int i = 0; i < 20; i++) {
        cleanup_free char *pod = xasprintf("p%da", i);
        start();
        take(pod, 300);
        usage_file_take(file, clock_mono_ms() + USAGE_FILE_MS + 1, history);
        stop();
        ck_assert_msg(file_has(pod), "%s is lost", pod);
        temp_remove(dir, "usage.json");
    }
}
END_TEST

/* A write to a FIFO waits for its reader, and then fails because a FIFO has no fsync. */
static void read_fifo(const char *fifo, const char *part)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    ck_assert_int_eq(file_read(fifo, 1 << 20, &text, &err), 0);
    ck_assert_msg(strstr(text.p, part) != NULL, "%s", text.p);
}

START_TEST(a_write_that_failed_is_repeated)
{
    cleanup_free char *fifo = temp_path(dir, "usage.json.new");
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    start();
    take("train", 300);
    int64_t at_ms = clock_mono_ms() + USAGE_FILE_MS + 1;
    usage_file_take(file, at_ms, history);
    read_fifo(fifo, "train");
    for (int i = 0; !file_has("train"); i++) { /* nothing is new */
        ck_assert_int_lt(i, 30000);
        usage_file_take(file, at_ms += USAGE_FILE_MS, history);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    stop();
}
END_TEST

START_TEST(a_disk_that_hangs_has_one_text_in_memory)
{
    cleanup_free char *fifo = temp_path(dir, "usage.json.new");
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    start();
    take("train", 300);
    int64_t at_ms = clock_mono_ms();
    for (int i = 0; i < 20; i++) {
        cleanup_free char *pod = xasprintf("p%da", i);
        usage_file_take(file, at_ms += USAGE_FILE_MS + 1, history);
        take(pod, 300);
    }
    read_fifo(fifo, "train");
    ck_assert(usage_file_stop(file, INT64_MAX));
    ck_assert_int_eq(access(path, F_OK), -1);
    usage_file_close(file, history);
    ck_assert(file_has("p19a"));
    usage_history_free(history);
}
END_TEST

START_TEST(a_folder_that_is_missing_stops_nothing)
{
    free(path);
    path = temp_path(dir, "missing/usage.json");
    start();
    take("train", 300);
    usage_file_take(file, clock_mono_ms() + USAGE_FILE_MS + 1, history);
    stop();
    usage_file_take(NULL, 0, NULL);
    ck_assert(usage_file_stop(NULL, 0));
    usage_file_close(NULL, NULL);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {the_next_process_continues,
                                  it_is_written_while_the_process_runs_but_not_always,
                                  nothing_new_is_not_written,
                                  a_damaged_file_is_replaced,
                                  a_text_that_waits_at_the_stop_is_written,
                                  a_write_that_failed_is_repeated,
                                  a_disk_that_hangs_has_one_text_in_memory,
                                  a_folder_that_is_missing_stops_nothing};
    const struct unit_fixtures around = {.begin = begin, .end = end};
    return unit_run_with("usage_file", tests, ARRAY_LEN(tests), 60, &around);
}
