/* SPDX-License-Identifier: Apache-2.0 */
#include "base/prom.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"

enum { NS = 1000000000 };

static const int64_t bounds[PROM_BOUNDS] = {
    25000,           50000,           100000,          250000,
    500000,          1000000,         2500000,         5000000,
    10000000,        25000000,        50000000,        100000000,
    250000000,       500000000,       (int64_t)1 * NS, (int64_t)NS * 5 / 2,
    (int64_t)5 * NS, (int64_t)15 * NS};

static const char *const types[] = {
    [PROM_COUNTER] = "counter", [PROM_GAUGE] = "gauge", [PROM_HISTOGRAM] = "histogram"};

void prom_family(struct buf *out, const char *name, enum prom_type type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

/* Escapes backslash, quote and newline; invalid UTF-8 becomes U+FFFD. */
static void add_value(struct buf *out, struct span s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t i = 0; i < s.n;) {
        size_t n = p[i] < 0x80 ? 1 : utf8_len(p + i, s.n - i);
        if (p[i] == '\\' || p[i] == '"')
            buf_addc(out, '\\');
        if (p[i] == '\n')
            buf_adds(out, "\\n");
        else if (n)
            buf_add(out, s.p + i, n);
        else
            buf_adds(out, "\xef\xbf\xbd");
        i += n ? n : 1;
    }
}

/* Appends the name of a sample and its labels; `le` is the label of a bucket, or NULL. */
static void begin(struct buf *out, const char *name, const char *suffix,
                  const struct prom_label *labels, size_t n, const char *le)
{
    buf_adds(out, name);
    buf_adds(out, suffix);
    for (size_t i = 0; i < n; i++) {
        buf_addc(out, i ? ',' : '{');
        buf_adds(out, labels[i].name);
        buf_adds(out, "=\"");
        add_value(out, labels[i].value);
        buf_addc(out, '"');
    }
    if (le) {
        buf_adds(out, n ? ",le=\"" : "{le=\"");
        buf_adds(out, le);
        buf_addc(out, '"');
    }
    buf_adds(out, n || le ? "} " : " ");
}

static void end(struct buf *out, int64_t value)
{
    buf_add_i64(out, value);
    buf_addc(out, '\n');
}

/* Without trailing zeros: 0.00025, 2.5, 15. */
static void add_nano(struct buf *out, int64_t value)
{
    buf_printf(out, "%lld.%09lld", (long long)(value / NS), (long long)(value % NS));
    while (out->p[out->n - 1] == '0')
        out->p[--out->n] = '\0';
    if (out->p[out->n - 1] == '.')
        out->p[--out->n] = '\0';
}

void prom_sample(struct buf *out, const char *name, const struct prom_label *labels,
                 size_t n, int64_t value)
{
    begin(out, name, "", labels, n, NULL);
    end(out, value);
}

void prom_labelled(struct buf *out, const char *name, const char *label, const char *of,
                   int64_t value)
{
    prom_sample(out, name, &(struct prom_label){label, span_of(of)}, 1, value);
}

void prom_nano(struct buf *out, const char *name, const struct prom_label *labels,
               size_t n, int64_t value)
{
    begin(out, name, "", labels, n, NULL);
    add_nano(out, value < 0 ? 0 : value);
    buf_addc(out, '\n');
}

void prom_one(struct buf *out, const char *name, const char *help, int64_t value)
{
    prom_family(out, name, strstr(name, "_total") ? PROM_COUNTER : PROM_GAUGE, help);
    prom_sample(out, name, NULL, 0, value);
}

void prom_observe(struct prom_histogram *h, int64_t ns)
{
    size_t i = 0;
    ns = ns < 0 ? 0 : ns;
    while (i < PROM_BOUNDS && ns > bounds[i])
        i++;
    atomic_fetch_add_explicit(&h->buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_ns, (uint64_t)ns, memory_order_relaxed);
}

/* The count is the sum of the buckets that were read, so that both agree although other
 * threads call prom_observe meanwhile. */
void prom_histogram(struct buf *out, const char *name, const struct prom_label *labels,
                    size_t n, const struct prom_histogram *h)
{
    int64_t count = 0;
    for (size_t i = 0; i <= PROM_BOUNDS; i++) {
        cleanup_buf struct buf le = {0};
        if (i < PROM_BOUNDS)
            add_nano(&le, bounds[i]);
        count += (int64_t)atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
        begin(out, name, "_bucket", labels, n, i < PROM_BOUNDS ? le.p : "+Inf");
        end(out, count);
    }
    begin(out, name, "_sum", labels, n, NULL);
    add_nano(out, (int64_t)atomic_load_explicit(&h->sum_ns, memory_order_relaxed));
    buf_addc(out, '\n');
    begin(out, name, "_count", labels, n, NULL);
    end(out, count);
}

/* -- the process_* metrics -- */

enum { STAT_MAX = 1 << 20 };

/* Field number `wanted` of /proc/self/stat, counted after the name, which is in
 * parentheses and may contain any character. 0: the file cannot be read. */
static int64_t field(const struct buf *stat, int wanted)
{
    const char *at = stat->n ? strrchr(stat->p, ')') : NULL;
    for (int i = 0; at && i < wanted; i++)
        at = strchr(at + 1, ' ');
    return at ? strtoll(at + 1, NULL, 10) : 0;
}

void prom_process(struct buf *out)
{
    enum { START = 20, VIRTUAL = 21, RESIDENT = 22 };
    cleanup_buf struct buf stat = {0}, system = {0};
    struct timespec cpu = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    prom_family(out, "process_cpu_seconds_total", PROM_COUNTER,
                "Total user and system CPU time spent in seconds.");
    prom_nano(out, "process_cpu_seconds_total", NULL, 0,
              (int64_t)cpu.tv_sec * NS + cpu.tv_nsec);
    if (!file_read("/proc/self/stat", STAT_MAX, &stat, NULL)) {
        file_read("/proc/stat", STAT_MAX, &system, NULL);
        const char *boot = system.n ? strstr(system.p, "\nbtime ") : NULL;
        int64_t boot_s = boot ? strtoll(boot + strlen("\nbtime "), NULL, 10) : 0;
        prom_one(out, "process_virtual_memory_bytes", "Virtual memory size in bytes.",
                 field(&stat, VIRTUAL));
        prom_one(out, "process_resident_memory_bytes", "Resident memory size in bytes.",
                 field(&stat, RESIDENT) * sysconf(_SC_PAGESIZE));
        prom_one(out, "process_start_time_seconds",
                 "Start time of the process since unix epoch in seconds.",
                 boot_s + field(&stat, START) / sysconf(_SC_CLK_TCK));
    }
    cleanup_folder DIR *dir = opendir("/proc/self/fd");
    int64_t n = -1; /* the descriptor of opendir */
    struct rlimit limit = {0};
    if (!dir)
        return;
    for (const struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    getrlimit(RLIMIT_NOFILE, &limit);
    prom_one(out, "process_open_fds", "Number of open file descriptors.", n);
    prom_one(out, "process_max_fds", "Maximum number of open file descriptors.",
             (int64_t)limit.rlim_cur);
}
