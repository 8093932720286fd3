/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/driver.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/node.h"

enum { NVIDIA_MAJOR = 195 };

static void add_node(const char *driver, const char *name, unsigned minor)
{
    cleanup_free char *path = xasprintf("%s/dev/%s", driver, name);
    ck_assert_msg(mknod(path, S_IFCHR | 0666, makedev(NVIDIA_MAJOR, minor)) == 0,
                  "mknod %s: %m", path);
}

/* A library of the driver, which is the fake NVML, and its link. */
static void add_library(const char *driver, const char *name)
{
    cleanup_free char *path =
        xasprintf("%s" DRIVER_LIBRARIES "/%s.so." DRIVER_VERSION, driver, name);
    cleanup_free char *link = xasprintf("%s" DRIVER_LIBRARIES "/%s.so.1", driver, name);
    cleanup_free char *target = xasprintf("%s.so." DRIVER_VERSION, name),
                      *nvml = node_nvml();
    cleanup_buf struct buf library = {0};
    struct err err;
    ck_assert_done(file_read(nvml, 1 << 24, &library, &err), err);
    ck_assert_done(file_write(path, buf_span(&library), &err), err);
    ck_assert_int_eq(symlink(target, link), 0);
}

char *driver_make(void)
{
    char *driver = temp_path(cell_dir(), "driver");
    if (access(driver, F_OK) == 0)
        return driver;
    static const char *const dirs[] = {"",         "/dev",     "/usr",
                                       "/usr/bin", "/usr/lib", DRIVER_LIBRARIES};
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        cleanup_free char *path = xasprintf("%s%s", driver, dirs[i]);
        ck_assert_msg(mkdir(path, 0755) == 0, "mkdir %s: %m", path);
    }
    for (unsigned i = 0; i < NODE_CARDS; i++) {
        char name[16];
        snprintf(name, sizeof name, "nvidia%u", i);
        add_node(driver, name, i);
    }
    add_node(driver, "nvidia-uvm", 254);
    add_node(driver, "nvidiactl", 255);
    add_library(driver, "libcuda");
    add_library(driver, "libnvidia-ml");
    temp_write(driver, "usr/bin/nvidia-smi", "");
    return driver;
}
