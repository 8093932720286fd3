/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

/*
 * For readers that take a path: the input as a file in memory. There is one file per
 * process, so a run leaves nothing behind.
 */

/* Returns the path of a file with these bytes; it is the same for every call. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) {
        perror("fuzz_file");
        exit(1);
    }
    return path;
}
