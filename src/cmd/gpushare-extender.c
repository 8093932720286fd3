/* SPDX-License-Identifier: Apache-2.0 */
#include <malloc.h>

#include "extender/extender.h"

/* Makes glibc return the memory of large request bodies, which are rare, to the kernel.
 * By default glibc keeps such memory per thread (after sixty bodies of 20 MiB, six at a
 * time: 465 MiB resident; 10 MiB with this setting). */
static void return_large_blocks(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

static void *start(const void *config, struct err *err)
{
    return extender_start(config, err);
}

static bool stop(void *extender)
{
    extender_stop(extender);
    return true;
}

int main(int argc, char **argv)
{
    static const struct entry entry = {&extender_program, start, stop, extender_once, NULL};
    struct extender_config config = {0};
    return_large_blocks();
    return entry_main(&entry, &config, argc, argv);
}
