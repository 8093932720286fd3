/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "setup/host_priv.h"

enum { TEXT_MAX = 256 * 1024, START_FIELD = 19 /* starttime, counted from the state */ };

static bool read_of(const char *proc, const char *pid, const char *name, struct buf *out)
{
    cleanup_free char *path = xasprintf("%s/%s/%s", proc, pid, name);
    return file_read(path, TEXT_MAX, out, NULL) == 0 && out->n;
}

/* The start of the process on the wall clock, exact to a tick. (The btime of /proc/stat
 * has whole seconds only.) */
static bool read_start(const char *proc, const char *pid, int64_t *ns)
{
    cleanup_buf struct buf stat = {0};
    struct timespec up;
    int64_t ticks = 0;
    if (!read_of(proc, pid, "stat", &stat))
        return false;
    const char *end = memrchr(stat.p, ')', stat.n);
    struct span rest = span_of(end && end[1] ? end + 2 : NULL), field = {0};
    for (int i = 0; i <= START_FIELD; i++)
        field = span_cut(&rest, ' ');
    if (!span_i64(field, &ticks) || clock_gettime(CLOCK_BOOTTIME, &up))
        return false;
    int64_t hz = sysconf(_SC_CLK_TCK);
    int64_t up_ns = up.tv_sec * INT64_C(1000000000) + up.tv_nsec;
    *ns = clock_wall_ns() - up_ns + ticks * (1000000000 / (hz > 0 ? hz : 100));
    return true;
}

static void add_process(const char *proc, const char *pid, struct facts *f)
{
    cleanup_buf struct buf name = {0};
    struct facts_process p = {.pid = atoi(pid)};
    const char *wanted = f->platform == FACTS_K3S ? "k3s-server" : "kube-scheduler";
    if (!read_of(proc, pid, "comm", &name) ||
        !span_eq(span_trim(buf_span(&name)), span_of(wanted)))
        return;
    /* A zombie has no arguments. */
    if (!read_of(proc, pid, "cmdline", &p.arguments) ||
        !read_start(proc, pid, &p.started_ns)) {
        buf_fini(&p.arguments);
        return;
    }
    f->processes = xreallocarray(f->processes, f->n_processes + 1, sizeof *f->processes);
    f->processes[f->n_processes++] = p;
}

void host_read_processes(const char *proc, struct facts *f)
{
    DIR *dir = opendir(proc);
    if (!dir) {
        err_set(&f->processes_why, ERR_UNAVAILABLE, "%s: %m", proc);
        return;
    }
    for (const struct dirent *e; (e = readdir(dir));)
        if (*e->d_name >= '1' && *e->d_name <= '9')
            add_process(proc, e->d_name, f);
    closedir(dir);
}
