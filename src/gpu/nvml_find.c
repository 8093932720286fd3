/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "gpu/nvml_priv.h"

#define NAME "libnvidia-ml.so.1"

/* The order of nvidia-container-toolkit 1.20 (pkg/lookup): RHEL and SUSE, Debian and Ubuntu,
 * Debian's own packages of the driver. */
const char *const gpu_library_dirs[GPU_LIBRARY_DIRS] = {
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
    "/lib"};

/* The path of an open file, new: the loader does not take a file for another one that it has
 * loaded from the same descriptor. */
static char *path_of(int fd)
{
    char self[64], path[PATH_MAX];
    struct stat st;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(self, path, sizeof path - 1);
    if (n <= 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
        return NULL;
    path[n] = '\0';
    return xstrdup(path);
}

/* The path of the library in a directory of the root; new, or NULL. */
static char *find_in(int root, const char *directory)
{
    cleanup_free char *at = xasprintf("%s/" NAME, directory);
    cleanup_close int fd = file_open_inside(root, at, O_PATH);
    return fd >= 0 ? path_of(fd) : NULL;
}

int nvml_find(const char *library, char **path, struct err *err)
{
    cleanup_close int root = open(library, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *path = NULL;
    if (root < 0) {
        *path = xstrdup(library);
        return 0;
    }
    /* The first is for drivers without a file system. */
    *path = find_in(root, "");
    for (size_t i = 0; i < GPU_LIBRARY_DIRS && !*path; i++)
        *path = find_in(root, gpu_library_dirs[i]);
    return *path ? 0
                 : err_set(err, ERR_NOT_FOUND,
                           "NVML: no " NAME " in the library directories below %s",
                           library);
}
