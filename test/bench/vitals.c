/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/vitals.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned count_fds(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n > 2 ? n - 2 : 0;
}

static unsigned count_threads(pid_t pid)
{
    char path[64], line[256];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "Threads:", 8) == 0)
            n = (unsigned)strtoul(line + 8, NULL, 10);
    if (f)
        fclose(f);
    return n;
}

struct vitals vitals_now(const struct server *s)
{
    return (struct vitals){server_mib(s), count_fds(s->pid), count_threads(s->pid)};
}

struct vitals vitals_peak(const struct vitals *samples, size_t n)
{
    struct vitals high = {0};
    for (size_t i = 0; i < n; i++) {
        const struct vitals *x = &samples[i];
        high.mib = x->mib > high.mib ? x->mib : high.mib;
        high.fds = x->fds > high.fds ? x->fds : high.fds;
        high.threads = x->threads > high.threads ? x->threads : high.threads;
    }
    return high;
}
