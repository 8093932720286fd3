/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/driver_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "gpu/gpu.h"

enum { FILES_MAX = 512 }; /* of one list; the driver has about 60 libraries */

static const char *const other_files[] = {"/usr/bin/nvidia-smi",
                                          "/usr/bin/nvidia-debugdump",
                                          "/usr/bin/nvidia-persistenced",
                                          "/usr/bin/nvidia-cuda-mps-control",
                                          "/usr/bin/nvidia-cuda-mps-server",
                                          "/run/nvidia-persistenced/socket"};

static const char *const common_nodes[DRIVER_NODES_MAX] = {
    "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};

/* Where nvidia-container-toolkit is installed by packages and by the GPU Operator. */
static const struct {
    const char *path;
    bool is_ctk;
} hooks[] = {{"/usr/bin/nvidia-cdi-hook", false},
             {"/usr/local/nvidia/toolkit/nvidia-cdi-hook", false},
             {"/usr/bin/nvidia-ctk", true},
             {"/usr/local/nvidia/toolkit/nvidia-ctk", true}};

struct search {
    int fd;             /* the directory in which absolute paths are resolved */
    const char *prefix; /* its path on the host, without a final slash */
    struct arena *a;
};

static bool exists(const struct search *s, const char *path, mode_t type)
{
    struct stat st;
    cleanup_close int fd = file_open_inside(s->fd, path, O_PATH);
    return fd >= 0 && fstat(fd, &st) == 0 && (!type || (st.st_mode & S_IFMT) == type);
}

static const char *joined(struct arena *a, const char *x, const char *y, const char *z)
{
    cleanup_free char *path = xasprintf("%s%s%s", x, y, z);
    return arena_copy(a, span_of(path)).p;
}

static struct driver_file file_of(const struct search *s, const char *path)
{
    const char *own = joined(s->a, path, "", "");
    return (struct driver_file){s->prefix[0] ? joined(s->a, s->prefix, path, "") : own,
                                own};
}

static void find_nodes(const struct search *s, struct driver_files *out)
{
    out->nodes = arena_zalloc(s->a, ARRAY_LEN(common_nodes) * sizeof *out->nodes);
    for (size_t i = 0; i < ARRAY_LEN(common_nodes); i++)
        if (exists(s, common_nodes[i], S_IFCHR))
            out->nodes[out->n_nodes++] = file_of(s, common_nodes[i]);
    for (unsigned minor = 0; minor < DRIVER_CARDS_MAX; minor++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%u", minor);
        out->has_card[minor] = exists(s, path, S_IFCHR);
    }
}

static void find_others(const struct search *s, struct driver_files *out)
{
    out->others = arena_zalloc(s->a, ARRAY_LEN(other_files) * sizeof *out->others);
    for (size_t i = 0; i < ARRAY_LEN(other_files); i++)
        if (exists(s, other_files[i], 0))
            out->others[out->n_others++] = file_of(s, other_files[i]);
}

/* libNAME.so.VERSION */
static bool is_library(const char *name, struct span ending)
{
    size_t n = strlen(name);
    return strncmp(name, "lib", 3) == 0 && n > 3 + ending.n &&
           memcmp(name + n - ending.n, ending.p, ending.n) == 0;
}

/* A link is kept if it leads to a library in the same directory. */
static void add_link(const struct search *s, int dir, const char *at, const char *name,
                     struct span ending, struct driver_files *out)
{
    char target[256], real[PATH_MAX], self[64];
    struct stat st;
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
    if (n <= 0 || memchr(target, '/', (size_t)n) || out->n_links == FILES_MAX)
        return;
    target[n] = '\0';
    cleanup_close int fd = openat(dir, name, O_PATH | O_CLOEXEC);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    n = fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)
            ? -1
            : readlink(self, real, sizeof real - 1);
    if (n <= 0)
        return;
    real[n] = '\0';
    const char *base = strrchr(real, '/');
    if (!base || !is_library(base + 1, ending))
        return;
    cleanup_free char *library = xasprintf("%s%s%s", s->prefix, at, base);
    out->links[out->n_links++] =
        (struct driver_link){at, joined(s->a, name, "", ""), joined(s->a, target, "", ""),
                             joined(s->a, library, "", "")};
}

static void read_directory(const struct search *s, const char *at, struct span ending,
                           struct driver_files *out)
{
    int fd = file_open_inside(s->fd, at, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (strncmp(e->d_name, "lib", 3) != 0 ||
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (S_ISLNK(st.st_mode)) {
            add_link(s, fd, at, e->d_name, ending, out);
        } else if (S_ISREG(st.st_mode) && is_library(e->d_name, ending) &&
                   out->n_libraries < FILES_MAX) {
            cleanup_free char *path = xasprintf("%s/%s", at, e->d_name);
            out->libraries[out->n_libraries++] = file_of(s, path);
        }
    }
    closedir(dir);
}

static int by_path(const void *a, const void *b)
{
    const struct driver_file *x = a, *y = b;
    return strcmp(x->host, y->host);
}

static int by_link(const void *a, const void *b)
{
    const struct driver_link *x = a, *y = b;
    int order = strcmp(x->directory, y->directory);
    return order ? order : strcmp(x->name, y->name);
}

/* The libraries of all directories, each directory once. */
static void find_libraries(const struct search *s, const char *version,
                           struct driver_files *out)
{
    struct stat seen[GPU_LIBRARY_DIRS];
    size_t n_seen = 0;
    cleanup_free char *ending = xasprintf(".so.%s", version);
    out->libraries = arena_zalloc(s->a, FILES_MAX * sizeof *out->libraries);
    out->links = arena_zalloc(s->a, FILES_MAX * sizeof *out->links);
    for (size_t i = 0; version[0] && i < GPU_LIBRARY_DIRS; i++) {
        struct stat *st = &seen[n_seen];
        bool known = false;
        cleanup_close int fd =
            file_open_inside(s->fd, gpu_library_dirs[i], O_RDONLY | O_DIRECTORY);
        if (fd < 0 || fstat(fd, st))
            continue;
        for (size_t k = 0; k < n_seen; k++)
            known |= seen[k].st_dev == st->st_dev && seen[k].st_ino == st->st_ino;
        if (known)
            continue;
        n_seen++;
        read_directory(s, gpu_library_dirs[i], span_of(ending), out);
    }
    /* The same files give the same specification. */
    qsort(out->libraries, out->n_libraries, sizeof *out->libraries, by_path);
    qsort(out->links, out->n_links, sizeof *out->links, by_link);
}

static void find_hook(const struct search *s, struct driver_files *out)
{
    for (size_t i = 0; i < ARRAY_LEN(hooks) && !out->hook; i++)
        if (exists(s, hooks[i].path, 0)) {
            out->hook = hooks[i].path;
            out->hook_is_ctk = hooks[i].is_ctk;
        }
}

int driver_files_find(const struct driver_root *root, const char *version,
                      struct arena *a, struct driver_files *out, struct err *err)
{
    const char *mount = root->mount[0] ? root->mount : "/";
    *out = (struct driver_files){.dev = ""};
    cleanup_close int host = open(mount, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host < 0)
        return err_set(err, ERR_NOT_FOUND, "%s: %m", mount);
    struct search own = {host, "", a}, driver = own;
    cleanup_close int inside = file_open_inside(host, root->driver, O_PATH | O_DIRECTORY);
    if (inside < 0)
        return err_set(err, ERR_NOT_FOUND, "%s on the host: %m", root->driver);
    if (strspn(root->driver, "/") != strlen(root->driver))
        driver = (struct search){inside, root->driver, a};
    bool has_dev = driver.prefix[0] && exists(&driver, "/dev/nvidiactl", S_IFCHR);
    out->dev = has_dev ? joined(a, driver.prefix, "", "") : "";
    find_nodes(has_dev ? &driver : &own, out);
    find_libraries(&driver, version, out);
    find_others(&driver, out);
    find_hook(&own, out); /* the toolkit is on the host in both cases */
    return 0;
}

bool driver_files_card(const struct driver_files *files, int64_t minor, struct arena *a,
                       struct driver_file *out)
{
    char path[32];
    if (minor < 0 || minor >= DRIVER_CARDS_MAX || !files->has_card[minor])
        return false;
    snprintf(path, sizeof path, "/dev/nvidia%d", (int)minor);
    out->container = joined(a, path, "", "");
    out->host = files->dev[0] ? joined(a, files->dev, path, "") : out->container;
    return true;
}
