/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/driver_tree.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "lib/temp.h"
#include "lib/unit.h"

#define LIBS DRIVER_TREE_LIBRARIES

void driver_tree_file(const char *host, const char *at)
{
    cleanup_free char *path = xasprintf("%s%s", host, at);
    for (char *p = path + strlen(host) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path, 0755);
        *p = '/';
    }
    temp_write(host, at + 1, "");
}

void driver_tree_node(const char *host, const char *at)
{
    cleanup_free char *path = xasprintf("%s%s", host, at);
    driver_tree_file(host, at);
    unlink(path);
    ck_assert_msg(mknod(path, S_IFCHR | 0600, makedev(1, 3)) == 0, "mknod: %m");
}

static void link_to(const char *host, const char *root, const char *at,
                    const char *target)
{
    cleanup_free char *path = xasprintf("%s%s%s", host, root, at);
    ck_assert_int_eq(symlink(target, path), 0);
}

void driver_tree_make(const char *host, const char *root)
{
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm",
                                        "/dev/nvidia0", "/dev/nvidia3"};
    static const char *const files[] = {
        LIBS "/libcuda.so.570.12",       LIBS "/libnvidia-ml.so.570.12",
        LIBS "/libcuda.so.535.1",        LIBS "/libc.so.6",
        LIBS "/libnvidia-ml.so.570.120", "/usr/bin/nvidia-smi"};
    array_items(node, nodes) {
        cleanup_free char *path = xasprintf("%s%s", root, *node);
        driver_tree_node(host, path);
    }
    array_items(file, files) {
        cleanup_free char *path = xasprintf("%s%s", root, *file);
        driver_tree_file(host, path);
    }
    link_to(host, root, LIBS "/libcuda.so.1", "libcuda.so.570.12");
    link_to(host, root, LIBS "/libcuda.so", "libcuda.so.1");
    link_to(host, root, LIBS "/libout.so", "/etc/passwd");
    link_to(host, root, "/lib", "/usr/lib"); /* the host's, not ours */
}
