/* SPDX-License-Identifier: Apache-2.0 */
#include "node/process_kill.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/unit.h"

/* A child process that waits for a signal. */
static struct usage_pid start(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    ck_assert_int_gt(pid, 0);
    cleanup_free char *path = xasprintf("/proc/%d/stat", (int)pid);
    cleanup_buf struct buf text = {0};
    struct err err;
    ck_assert_done(file_read(path, 4096, &text, &err), err);
    struct span rest = span_of(strrchr(text.p, ')') + 2);
    int64_t started;
    for (int field = 3; field < 22; field++)
        span_cut(&rest, ' ');
    ck_assert(span_i64(span_cut(&rest, ' '), &started));
    return (struct usage_pid){pid, (uint64_t)started};
}

/* The signal that ended the child. */
static int end(const struct usage_pid *pid)
{
    int status;
    ck_assert_int_eq(waitpid((pid_t)pid->pid, &status, 0), pid->pid);
    ck_assert(WIFSIGNALED(status));
    return WTERMSIG(status);
}

START_TEST(the_process_that_was_measured_is_killed)
{
    struct process_reader *r = process_reader_new("/");
    struct usage_pid pid = start();
    struct err err = {0};
    ck_assert_done(process_kill(r, &pid, &err), err);
    ck_assert_int_eq(end(&pid), SIGKILL);
    process_reader_free(r);
}

START_TEST(a_process_with_a_reused_pid_is_not_hit)
{
    struct process_reader *r = process_reader_new("/");
    struct usage_pid pid = start(), before = {pid.pid, pid.started - 1};
    struct err err = {0};
    ck_assert_int_eq(process_kill(r, &before, &err), -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    /* Were SIGKILL pending, it would end the process, whatever follows. */
    ck_assert_int_eq(kill((pid_t)pid.pid, SIGUSR1), 0);
    ck_assert_int_eq(end(&pid), SIGUSR1);
    process_reader_free(r);
}

START_TEST(a_process_that_has_ended_is_not_found)
{
    struct process_reader *r = process_reader_new("/");
    struct usage_pid pid = start();
    struct err err = {0};
    kill((pid_t)pid.pid, SIGUSR1);
    end(&pid);
    ck_assert_int_eq(process_kill(r, &pid, &err), -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    process_reader_free(r);
}

START_TEST(init_process_groups_and_this_process_are_never_killed)
{
    static const int64_t never[] = {-1, 0, 1, (int64_t)1 << 32};
    struct process_reader *r = process_reader_new("/");
    struct usage_pid self = {getpid(), 0};
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(never); i++) {
        struct usage_pid pid = {never[i], 0};
        ck_assert_int_eq(process_kill(r, &pid, &err), -1);
        ck_assert_int_eq(err.code, ERR_INVALID);
    }
    ck_assert_int_eq(process_kill(r, &self, &err), -1);
    ck_assert_int_eq(err.code, ERR_INVALID);
    process_reader_free(r);
}

UNIT_MAIN("process_kill", the_process_that_was_measured_is_killed,
          a_process_with_a_reused_pid_is_not_hit, a_process_that_has_ended_is_not_found,
          init_process_groups_and_this_process_are_never_killed)
