/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "wire/grpcd_priv.h"

/*
 * The socket is created under a temporary name in the same directory, gets its mode and
 * listens, and is then renamed. So a client that finds the path can connect, and
 * replacing a socket is atomic.
 *
 * The file is only removed if it has the device and inode of our socket. While the socket
 * is open, its inode number is not reused.
 */

enum { BACKLOG = 64 };

/* ERR_CONFLICT if a process listens at the path. */
static int check_no_listener(const char *path, const struct sockaddr_un *addr,
                             struct err *err)
{
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: socket: %s", path,
                       strerrordesc_np(errno));
    if (connect(fd, (const struct sockaddr *)addr, sizeof *addr) == 0 || errno == EAGAIN)
        return err_set(err, ERR_CONFLICT, "%s: another process is listening", path);
    return 0;
}

static int check_path(const char *path, const struct sockaddr_un *addr, struct err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        if (errno == ENOENT)
            return 0;
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerrordesc_np(errno));
    }
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, ERR_CONFLICT, "%s: not a socket, will not be replaced", path);
    return check_no_listener(path, addr, err);
}

/* A unique temporary name in the same directory. */
static char *temporary_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    int dir = slash ? (int)(slash + 1 - path) : 0;
    return xasprintf("%.*s.%08x", dir, path, (unsigned)rng_entropy());
}

static int listen_and_rename(struct grpcd_socket *s, const char *temporary,
                             struct err *err)
{
    struct stat st;
    if (chmod(temporary, 0600) != 0 || listen(s->fd, BACKLOG) != 0 ||
        lstat(temporary, &st) != 0 || rename(temporary, s->path) != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", s->path, strerrordesc_np(errno));
    s->dev = st.st_dev;
    s->ino = st.st_ino;
    return 0;
}

static int bind_at(struct grpcd_socket *s, const char *temporary, struct err *err)
{
    struct sockaddr_un addr;
    if (!grpc_address(temporary, &addr, err))
        return -1;
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: socket: %s", s->path,
                       strerrordesc_np(errno));
    if (bind(s->fd, (struct sockaddr *)&addr, sizeof addr) != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", s->path, strerrordesc_np(errno));
    if (listen_and_rename(s, temporary, err)) {
        unlink(temporary);
        return -1;
    }
    return 0;
}

int grpcd_socket_open(struct grpcd_socket *s, const char *path, struct err *err)
{
    struct sockaddr_un addr;
    *s = (struct grpcd_socket){.fd = -1};
    if (!grpc_address(path, &addr, err) || check_path(path, &addr, err))
        return -1;
    cleanup_free char *temporary = temporary_path(path);
    s->path = xstrdup(path);
    if (bind_at(s, temporary, err) == 0)
        return 0;
    if (s->fd >= 0)
        close(s->fd);
    free(s->path);
    *s = (struct grpcd_socket){.fd = -1};
    return -1;
}

bool grpcd_socket_is_ours(const struct grpcd_socket *s)
{
    struct stat st;
    return s->path && lstat(s->path, &st) == 0 && st.st_dev == s->dev &&
           st.st_ino == s->ino;
}

void grpcd_socket_close(struct grpcd_socket *s)
{
    if (s->fd < 0)
        return;
    if (grpcd_socket_is_ours(s))
        unlink(s->path);
    close(s->fd);
    s->fd = -1;
}
