/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

static int fail(const char *path, struct err *err)
{
    enum err_code code = ERR_UNAVAILABLE;
    if (errno == ENOENT || errno == ENOTDIR)
        code = ERR_NOT_FOUND;
    else if (errno == EACCES || errno == EPERM)
        code = ERR_FORBIDDEN;
    return err_set(err, code, "%s: %m", path);
}

/* Does not trust the size from fstat: the file may grow, or not be a regular file. */
static int read_all(int fd, const char *path, size_t max, struct buf *out,
                    struct err *err)
{
    enum { STEP = 16 * 1024 };
    size_t start = out->n;
    for (;;) {
        buf_reserve_secret(out, STEP); /* the file may be a private key */
        ssize_t n = read(fd, out->p + out->n, STEP);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(path, err);
        if (n == 0)
            return 0;
        out->n += (size_t)n;
        if (out->n - start > max)
            return err_set(err, ERR_TOO_LARGE, "%s: larger than %zu bytes", path, max);
    }
}

int file_read(const char *path, size_t max, struct buf *out, struct err *err)
{
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail(path, err);
    size_t start = out->n;
    int rc = read_all(fd, path, max, out, err);
    if (rc)
        out->n = start;
    out->p[out->n] = '\0';
    return rc;
}

static int write_all(int fd, struct span bytes)
{
    for (size_t done = 0; done < bytes.n;) {
        ssize_t n = write(fd, bytes.p + done, bytes.n - done);
        if (n < 0 && errno != EINTR)
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return fsync(fd);
}

int file_write(const char *path, struct span bytes, struct err *err)
{
    /* Two processes may replace the file at once. */
    cleanup_free char *fresh = xasprintf("%s.XXXXXX", path);
    cleanup_close int fd = mkostemp(fresh, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return fail(path, err);
    if (write_all(fd, bytes) || rename(fresh, path)) {
        int rc = fail(path, err);
        unlink(fresh);
        return rc;
    }
    /* The rename must be durable, too. */
    cleanup_free char *copy = xstrdup(path);
    cleanup_close int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0)
        (void)fsync(folder);
    return 0;
}

int file_open_inside(int root, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC),
                           .resolve = RESOLVE_IN_ROOT};
    long fd = syscall(SYS_openat2, root, path, &how, sizeof how);
    if (fd < 0 && errno == ENOSYS)
        fd = openat(root, path + strspn(path, "/"), flags | O_CLOEXEC);
    return (int)fd;
}

void file_cleanup_folder(DIR **folder)
{
    if (*folder)
        closedir(*folder);
}

void file_raise_limit(void)
{
    enum { ENOUGH = 65536 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    rlim_t wanted = limit.rlim_max < ENOUGH ? limit.rlim_max : ENOUGH;
    if (limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit); /* may fail only if the limit has changed since */
}
