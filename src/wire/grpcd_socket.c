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
 * The socket gets its mode and starts to listen under another name in the same directory
 * and is then renamed: whoever finds it at its path can connect, and there is never a
 * moment at which the path of a replaced socket leads nowhere.
 *
 * Only a file with the device and inode of ours is removed at the end. As long as the
 * socket is open its inode cannot be another file's.
 */

enum { BACKLOG = 64 };

/* Does somebody accept connections there? */
static int refuse_if_served(const char *path, const struct sockaddr_un *addr,
                            struct err *err)
{
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: socket: %s", path,
                       strerrordesc_np(errno));
    if (connect(fd, (const struct sockaddr *)addr, sizeof *addr) == 0 || errno == EAGAIN)
        return err_set(err, ERR_CONFLICT, "%s: another process serves there", path);
    return 0;
}

static int look_at(const char *path, const struct sockaddr_un *addr, struct err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        if (errno == ENOENT)
            return 0;
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerrordesc_np(errno));
    }
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, ERR_CONFLICT,
                       "%s: is there and no socket; it is not replaced", path);
    return refuse_if_served(path, addr, err);
}

/* Its name until it is complete; nobody else's. */
static char *first_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    int dir = slash ? (int)(slash + 1 - path) : 0;
    return xasprintf("%.*s.%08x", dir, path, (unsigned)rng_entropy());
}

static int put_in_place(struct grpcd_socket *s, const char *first, struct err *err)
{
    struct stat st;
    if (chmod(first, 0600) != 0 || listen(s->fd, BACKLOG) != 0 ||
        lstat(first, &st) != 0 || rename(first, s->path) != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", s->path, strerrordesc_np(errno));
    s->dev = st.st_dev;
    s->ino = st.st_ino;
    return 0;
}

static int bind_at(struct grpcd_socket *s, const char *first, struct err *err)
{
    struct sockaddr_un addr;
    if (!grpc_address(first, &addr, err))
        return -1;
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: socket: %s", s->path,
                       strerrordesc_np(errno));
    if (bind(s->fd, (struct sockaddr *)&addr, sizeof addr) != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", s->path, strerrordesc_np(errno));
    if (put_in_place(s, first, err)) {
        unlink(first);
        return -1;
    }
    return 0;
}

int grpcd_socket_open(struct grpcd_socket *s, const char *path, struct err *err)
{
    struct sockaddr_un addr;
    *s = (struct grpcd_socket){.fd = -1};
    if (!grpc_address(path, &addr, err) || look_at(path, &addr, err))
        return -1;
    cleanup_free char *first = first_path(path);
    s->path = xstrdup(path);
    if (bind_at(s, first, err) == 0)
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
