/* SPDX-License-Identifier: Apache-2.0 */
#include "node/process_kill.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

/* The wrappers of glibc 2.36 are newer than the oldest kernel headers that we build with. */
static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int fail(const struct usage_pid *pid, const char *call, struct err *err)
{
    enum err_code code = errno == ESRCH   ? ERR_NOT_FOUND
                         : errno == EPERM ? ERR_FORBIDDEN
                                          : ERR_INTERNAL;
    return err_set(err, code, "%s of process %lld: %s", call, (long long)pid->pid,
                   strerror(errno));
}

int process_kill(const struct process_reader *r, const struct usage_pid *pid,
                 struct err *err)
{
    if (pid->pid <= 1 || pid->pid > INT_MAX || pid->pid == getpid())
        return err_set(err, ERR_INVALID, "process %lld is never killed",
                       (long long)pid->pid);
    cleanup_close int fd = open_pidfd((pid_t)pid->pid);
    if (fd < 0)
        return fail(pid, "pidfd_open", err);
    if (!process_reader_is_alive(r, pid))
        return err_set(err, ERR_NOT_FOUND, "process %lld has ended", (long long)pid->pid);
    if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0))
        return fail(pid, "pidfd_send_signal", err);
    return 0;
}
