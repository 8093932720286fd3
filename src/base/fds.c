/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fds.h"

#include <sys/resource.h>

enum { ENOUGH = 65536 };

void fds_raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    rlim_t wanted = limit.rlim_max < ENOUGH ? limit.rlim_max : ENOUGH;
    if (limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit); /* may fail only if the limit has changed since */
}
