/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/prom.h"

enum { STAT_MAX = 1 << 20, NS_PER_US = 1000 };

static int64_t ns_of(struct timeval t)
{
    return ((int64_t)t.tv_sec * 1000000 + t.tv_usec) * NS_PER_US;
}

static void cpu(struct buf *out)
{
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    prom_family(out, "process_cpu_seconds_total", PROM_COUNTER,
                "Total user and system CPU time spent in seconds.");
    prom_seconds(out, "process_cpu_seconds_total", NULL, 0,
                 ns_of(usage.ru_utime) + ns_of(usage.ru_stime));
}

/* Field number `wanted` of /proc/self/stat, counted after the name, which is in
 * parentheses and may contain any character. 0: the file cannot be read. */
static int64_t field(const struct buf *stat, int wanted)
{
    const char *at = stat->n ? strrchr(stat->p, ')') : NULL;
    for (int i = 0; at && i < wanted; i++)
        at = strchr(at + 1, ' ');
    return at ? strtoll(at + 1, NULL, 10) : 0;
}

static int64_t boot_s(void)
{
    cleanup_buf struct buf stat = {0};
    if (file_read("/proc/stat", STAT_MAX, &stat, NULL) || !stat.n)
        return 0;
    const char *at = strstr(stat.p, "\nbtime ");
    return at ? strtoll(at + strlen("\nbtime "), NULL, 10) : 0;
}

static void memory_and_start(struct buf *out)
{
    enum { START = 20, VIRTUAL = 21, RESIDENT = 22 };
    cleanup_buf struct buf stat = {0};
    if (file_read("/proc/self/stat", STAT_MAX, &stat, NULL))
        return;
    prom_one(out, "process_virtual_memory_bytes", PROM_GAUGE,
             "Virtual memory size in bytes.", field(&stat, VIRTUAL));
    prom_one(out, "process_resident_memory_bytes", PROM_GAUGE,
             "Resident memory size in bytes.",
             field(&stat, RESIDENT) * sysconf(_SC_PAGESIZE));
    prom_one(out, "process_start_time_seconds", PROM_GAUGE,
             "Start time of the process since unix epoch in seconds.",
             boot_s() + field(&stat, START) / sysconf(_SC_CLK_TCK));
}

/* The number of open descriptors, or -1. */
static int64_t count_descriptors(void)
{
    struct stat st;
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0) /* since Linux 6.2 */
        return st.st_size;
    DIR *dir = opendir("/proc/self/fd");
    int64_t n = -1; /* the descriptor of opendir */
    if (!dir)
        return -1;
    for (const struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void descriptors(struct buf *out)
{
    struct rlimit limit = {0};
    int64_t n = count_descriptors();
    if (n < 0)
        return;
    getrlimit(RLIMIT_NOFILE, &limit);
    prom_one(out, "process_open_fds", PROM_GAUGE, "Number of open file descriptors.", n);
    prom_one(out, "process_max_fds", PROM_GAUGE,
             "Maximum number of open file descriptors.", (int64_t)limit.rlim_cur);
}

void prom_process(struct buf *out)
{
    cpu(out);
    memory_and_start(out);
    descriptors(out);
}
