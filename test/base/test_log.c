/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>

#include "base/clock.h"
#include "lib/unit.h"

TEST(a_line_is_logfmt_with_quotes_where_needed)
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

TEST(errors_are_wrapped_and_truncated)
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

enum { PIPE_BYTES = 4096, QUEUE_BYTES = 256 * 1024, LINES = 20000 };

/* Standard error is the pipe until restore_stderr. */
static int redirect_stderr(int *read_end)
{
    int fds[2], saved = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES), PIPE_BYTES);
    ck_assert_int_eq(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    close(fds[1]);
    *read_end = fds[0];
    log_set_level(LOG_INFO);
    log_start();
    return saved;
}

static void restore_stderr(int saved)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
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

/* Every line of the text is a logged line, in order, or a report. Returns the number of
 * logged lines, and in `dropped` the sum of the reports. */
static int count_lines(const char *text, int *dropped)
{
    int lines = 0, next = 0, i;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
        const char *end = strchr(at, '\n'), *number = strstr(at, " i=");
        const char *report = strstr(at, "msg=\"");
        if (number && number < end && sscanf(number, " i=%d", &i) == 1) {
            ck_assert_int_ge(i, next);
            next = i + 1;
            lines++;
        } else {
            bool is_report =
                report && sscanf(report, "msg=\"%d log lines dropped\"", &i) == 1;
            ck_assert_msg(is_report, "%.80s", at);
            *dropped += i;
        }
    }
    return lines;
}

TEST(an_unread_pipe_blocks_no_thread_and_dropped_lines_are_counted)
{
    int fd, dropped = 0, saved = redirect_stderr(&fd);
    int64_t from = clock_mono_ms();
    for (int i = 0; i < LINES; i++)
        log_info("test", "line", LOG_I("i", i));
    log_flush(); /* gives up: nothing reads */
    int64_t took = clock_mono_ms() - from;
    struct late_reader reader = {.fd = fd};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, read_late, &reader), 0);
    log_flush();
    log_info("test", "line", LOG_I("i", LINES)); /* after the report */
    log_flush();
    restore_stderr(saved);
    pthread_join(thread, NULL);
    ck_assert_int_lt(took, 10000 * LIB_SLOWER);
    buf_addc(&reader.text, '\0');
    int kept = count_lines(reader.text.p, &dropped);
    ck_assert_int_gt(kept, QUEUE_BYTES / 100);
    ck_assert_int_gt(dropped, 0);
    ck_assert_int_eq(kept + dropped, LINES + 1);
    buf_fini(&reader.text);
    close(fd);
}

/* A write to a packet pipe is a packet, as long as it is no longer than PIPE_BUF. */
TEST(lines_that_wait_are_written_together_and_none_is_split)
{
    enum { WAITING = 200 };
    int fds[2], saved = dup(STDERR_FILENO), lines = 0, packets = 0;
    char packet[PIPE_BUF];
    ck_assert_int_eq(pipe2(fds, O_DIRECT), 0);
    ck_assert_int_eq(fcntl(fds[1], F_SETPIPE_SZ, 1 << 20), 1 << 20); /* 256 packets */
    ck_assert_int_eq(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    close(fds[1]);
    log_set_level(LOG_INFO);
    log_start();
    for (int i = 0; i < WAITING; i++)
        log_info("test", "line", LOG_I("i", i));
    log_flush();
    restore_stderr(saved);
    for (ssize_t n; (n = read(fds[0], packet, sizeof packet)) > 0; packets++) {
        ck_assert_int_eq(packet[n - 1], '\n');
        for (ssize_t i = 0; i < n; i++)
            lines += packet[i] == '\n';
    }
    ck_assert_int_eq(lines, WAITING);
    ck_assert_int_lt(packets, WAITING / 2);
    close(fds[0]);
}
