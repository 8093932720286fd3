/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plugin_dir.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kube/deviceplugin.h"

enum {
    WATCHED = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF |
              IN_MOVE_SELF | IN_ONLYDIR,
};

struct plugin_dir {
    char *path, *kubelet;
    char *endpoints[IDS_RESOURCES], *sockets[IDS_RESOURCES];
    int fd, watch;
};

static const char *const prefixes[IDS_RESOURCES] = {"gpushare-mem-", "gpushare-count-",
                                                    "gpushare-core-"};

/* Does a process listen on the socket? */
static bool answers(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path)
        return false;
    strcpy(to.sun_path, path);
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
}

/* Calls `each` for the endpoints of other gpushare plugins, until it returns true. */
static bool walk(const struct plugin_dir *d, enum ids_resource r,
                 bool (*each)(const struct plugin_dir *, enum ids_resource, const char *))
{
    DIR *dir = opendir(d->path);
    struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir)) != NULL)
        if (span_starts(span_of(entry->d_name), span_of(prefixes[r])) &&
            strcmp(entry->d_name, d->endpoints[r]) != 0)
            found = each(d, r, entry->d_name);
    if (dir)
        closedir(dir);
    return found;
}

static bool remove_dead(const struct plugin_dir *d, enum ids_resource r, const char *name)
{
    cleanup_free char *path = xasprintf("%s/%s", d->path, name);
    struct stat st;
    (void)r;
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && !answers(path))
        unlink(path);
    return false;
}

/* Start times have a fixed number of digits, so the order of names is that of age. */
static bool is_newer(const struct plugin_dir *d, enum ids_resource r, const char *name)
{
    cleanup_free char *path = xasprintf("%s/%s", d->path, name);
    return strcmp(name, d->endpoints[r]) > 0 && answers(path);
}

bool plugin_dir_has_newer(const struct plugin_dir *d, enum ids_resource r)
{
    return walk(d, r, is_newer);
}

static void watch(struct plugin_dir *d)
{
    d->watch = inotify_add_watch(d->fd, d->path, WATCHED);
}

struct plugin_dir *plugin_dir_open(const char *path, struct err *err)
{
    struct stat st;
    if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
        err_set(err, ERR_NOT_FOUND, "--plugin-dir: %s: %s", path,
                errno ? strerror(errno) : "not a directory");
        return NULL;
    }
    struct plugin_dir *d = xcalloc(1, sizeof *d);
    long long start = clock_wall_ns() / 1000000;
    d->path = xstrdup(path);
    d->kubelet = xasprintf("%s/" DP_KUBELET_SOCK, path);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        d->endpoints[r] = xasprintf("%s%013lld-%d.sock", prefixes[r], start, getpid());
        d->sockets[r] = xasprintf("%s/%s", path, d->endpoints[r]);
        walk(d, (enum ids_resource)r, remove_dead);
    }
    d->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    watch(d);
    return d;
}

void plugin_dir_close(struct plugin_dir *d)
{
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        free(d->endpoints[r]);
        free(d->sockets[r]);
    }
    free(d->path);
    free(d->kubelet);
    free(d);
}

const char *plugin_dir_endpoint(const struct plugin_dir *d, enum ids_resource r)
{
    return d->endpoints[r];
}

const char *plugin_dir_socket(const struct plugin_dir *d, enum ids_resource r)
{
    return d->sockets[r];
}

const char *plugin_dir_kubelet(const struct plugin_dir *d)
{
    return d->kubelet;
}

uint64_t plugin_dir_kubelet_id(const struct plugin_dir *d)
{
    struct stat st;
    if (stat(d->kubelet, &st) || !S_ISSOCK(st.st_mode))
        return 0;
    /* A file system can reuse an inode number, so the change time is mixed in. */
    return (uint64_t)st.st_ino ^ (uint64_t)st.st_ctim.tv_nsec << 32 ^
           (uint64_t)st.st_ctim.tv_sec << 20;
}

int plugin_dir_fd(const struct plugin_dir *d)
{
    return d->fd;
}

void plugin_dir_drain(struct plugin_dir *d)
{
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n;
    bool lost = d->watch < 0;
    while (d->fd >= 0 && (n = read(d->fd, events, sizeof events)) > 0)
        for (char *p = events; p < events + n;) {
            struct inotify_event *e = (struct inotify_event *)p;
            lost |= (e->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF)) != 0;
            p += sizeof *e + e->len;
        }
    if (lost)
        watch(d);
}
