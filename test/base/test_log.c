/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_queue_priv.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "lib/unit.h"

START_TEST(a_line_is_logfmt_with_quotes_where_needed)
{
    cleanup_buf struct buf b = {0};
    const struct log_field fields[] = {LOG_S("kind", "pods"),      LOG_I("n", -4),
                                       LOG_S("why", "a \"b\"\nc"), LOG_S("none", ""),
                                       LOG_S("null", NULL),        {0}};
    log_format(&b, 1599306468007, LOG_WARN, "watch", "list done", fields);
    ck_assert_str_eq(b.p, "time=2020-09-05T11:47:48.007Z level=warn module=watch "
                          "msg=\"list done\" kind=pods n=-4 why=\"a \\\"b\\\"\\nc\" "
                          "none=\"\" null=\"\"");
}
END_TEST

START_TEST(levels_are_filtered)
{
    log_set_level(LOG_WARN);
    ck_assert(log_enabled(LOG_ERROR) && log_enabled(LOG_WARN) && !log_enabled(LOG_INFO));
}
END_TEST

START_TEST(errors_are_wrapped_and_truncated)
{
    struct err err = {0};
    ck_assert_int_eq(err_set(&err, ERR_CONFLICT, "taken by %s", "n1"), -1);
    err_wrap(&err, "bind default/p%d", 1);
    ck_assert_str_eq(err.msg, "bind default/p1: taken by n1");
    ck_assert_int_eq(err.code, ERR_CONFLICT);
    ck_assert_uint_eq(err_http_status(err.code), 409);
    ck_assert_str_eq(err_code_name(err.code), "conflict");
    for (int i = 0; i < 100; i++)
        err_wrap(&err, "a longer and longer message");
    ck_assert_uint_lt(strlen(err.msg), sizeof err.msg);
    ck_assert_int_eq(err_set(NULL, ERR_INVALID, "nobody listens"), -1);
}
END_TEST

enum { PIPE_BYTES = 4096, QUEUE_BYTES = 65536, LINES = 10000 };

static void add_line(struct log_queue *q, int i)
{
    char line[32];
    int n = snprintf(line, sizeof line, "line %06d of many\n", i);
    log_queue_add(q, (struct span){line, (size_t)n});
}

static void report(struct buf *out, uint64_t dropped)
{
    buf_printf(out, "msg=\"%llu log lines dropped\"\n", (unsigned long long)dropped);
}

static struct log_queue *start_queue(int fds[2])
{
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES), PIPE_BYTES);
    return log_queue_start(fds[1], QUEUE_BYTES, report);
}

/* What can be read until the writer has closed the pipe. */
static void read_all(int fd, struct buf *out)
{
    char piece[4096];
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;)
        buf_add(out, piece, (size_t)n);
}

struct late_reader {
    int fd;
    struct buf text;
};

static void *read_late(void *arg)
{
    struct late_reader *r = arg;
    read_all(r->fd, &r->text);
    return NULL;
}

/* Every line of the text is an added line, in order, or a report. Returns the number of
 * added lines, and in `dropped` the sum of the reports. */
static int count_lines(const char *text, int *dropped)
{
    int lines = 0, next = 0, i, n;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1)
        if (sscanf(at, "line %6d of many", &i) == 1) {
            ck_assert_int_ge(i, next);
            next = i + 1;
            lines++;
        } else {
            ck_assert_msg(sscanf(at, "msg=\"%d log lines dropped\"", &n) == 1, "%.40s",
                          at);
            *dropped += n;
        }
    return lines;
}

START_TEST(an_unread_pipe_blocks_no_thread_and_dropped_lines_are_counted)
{
    int fds[2], dropped = 0;
    struct log_queue *q = start_queue(fds);
    int64_t from = clock_mono_ms();
    for (int i = 0; i < LINES; i++)
        add_line(q, i);
    ck_assert(!log_queue_flush(q, 50));
    ck_assert_int_lt(clock_mono_ms() - from, 10000 * LIB_SLOWER);
    struct late_reader reader = {.fd = fds[0]};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, read_late, &reader), 0);
    ck_assert(log_queue_flush(q, 10 * 1000));
    add_line(q, LINES); /* after the report */
    log_queue_stop(q, 10 * 1000);
    close(fds[1]);
    pthread_join(thread, NULL);
    buf_addc(&reader.text, '\0');
    int kept = count_lines(reader.text.p, &dropped);
    ck_assert_int_gt(kept, QUEUE_BYTES / 32);
    ck_assert_int_gt(dropped, 0);
    ck_assert_int_eq(kept + dropped, LINES + 1);
    buf_fini(&reader.text);
    close(fds[0]);
}
END_TEST

START_TEST(queued_lines_are_written_at_exit_which_does_not_wait_for_a_reader)
{
    int fds[2];
    cleanup_buf struct buf text = {0};
    struct log_queue *q = start_queue(fds);
    for (int i = 0; i < 100; i++)
        add_line(q, i);
    log_queue_stop(q, 10 * 1000);
    close(fds[1]);
    read_all(fds[0], &text);
    ck_assert_uint_eq(text.n, 100 * strlen("line 000000 of many\n"));
    close(fds[0]);

    q = start_queue(fds);
    for (int i = 0; i < 1000; i++)
        add_line(q, i);
    int64_t from = clock_mono_ms();
    log_queue_stop(q, 100);
    ck_assert_int_lt(clock_mono_ms() - from, 10000 * LIB_SLOWER);
}
END_TEST

UNIT_MAIN("log", a_line_is_logfmt_with_quotes_where_needed, levels_are_filtered,
          errors_are_wrapped_and_truncated,
          an_unread_pipe_blocks_no_thread_and_dropped_lines_are_counted,
          queued_lines_are_written_at_exit_which_does_not_wait_for_a_reader)
