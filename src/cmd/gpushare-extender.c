/* SPDX-License-Identifier: Apache-2.0 */
#include <malloc.h>

#include "extender/extender.h"

/* Bodies of requests can be large and are rare then. glibc would keep what each thread
 * once held (measured: 465 MiB after sixty bodies of 20 MiB, six at a time; 10 MiB so).
 */
static void give_large_memory_back(void)
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
    static const struct entry entry = {&extender_program, start, stop, NULL};
    struct extender_config config = {0};
    give_large_memory_back();
    return entry_main(&entry, &config, argc, argv);
}
