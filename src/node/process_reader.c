/* SPDX-License-Identifier: Apache-2.0 */
#include "node/process_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "node/process_container.h"

enum {
    STAT_MAX = 4096,
    STARTED = 22,  /* field of /proc/PID/stat: the start time */
    AFTER_COMM = 3 /* the field after the name, which is in parentheses */
};

struct process_reader {
    char *proc;
};

struct process_reader *process_reader_new(const char *host_root)
{
    struct process_reader *r = xcalloc(1, sizeof *r);
    size_t n = strlen(host_root);
    while (n && host_root[n - 1] == '/')
        n--;
    r->proc = xasprintf("%.*s/proc", (int)n, host_root);
    return r;
}

void process_reader_free(struct process_reader *r)
{
    if (!r)
        return;
    free(r->proc);
    free(r);
}

/* Appends a file of a folder; at most `max` bytes. -1: errno is set. */
static int read_at(int folder, const char *name, size_t max, struct buf *out)
{
    cleanup_close int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    buf_reserve(out, max + 1);
    while (out->n <= max) {
        ssize_t n = read(fd, out->p + out->n, max + 1 - out->n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            return 0;
        out->n += (size_t)n;
        out->p[out->n] = '\0';
    }
    errno = EFBIG;
    return -1;
}

/* What /proc/PID/stat has. */
struct stat_line {
    uint64_t started;
    struct span name; /* comm */
    char state;
};

/* "PID (comm) S PPID ...": the name may have any characters, also ')' and ' '. */
static bool read_stat(struct span stat, struct stat_line *line)
{
    const char *first = memchr(stat.n ? stat.p : "", '(', stat.n);
    const char *last = stat.n ? memrchr(stat.p, ')', stat.n) : NULL;
    int64_t v = 0;
    if (!first || !last || last < first)
        return false;
    line->name = (struct span){first + 1, (size_t)(last - first - 1)};
    struct span rest = {last + 1, stat.n - (size_t)(last + 1 - stat.p)};
    if (!span_starts(rest, SPAN(" ")))
        return false;
    span_cut(&rest, ' ');
    line->state = rest.n ? rest.p[0] : '\0';
    for (int i = AFTER_COMM; i < STARTED && rest.p; i++)
        span_cut(&rest, ' ');
    if (!rest.p || !span_i64(span_cut(&rest, ' '), &v) || v < 0)
        return false;
    line->started = (uint64_t)v;
    return true;
}

static int open_process(const struct process_reader *r, int64_t pid)
{
    cleanup_free char *path = xasprintf("%s/%" PRId64, r->proc, pid);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The name is in `text`. -1: errno is ENOENT or ESRCH when the process ended. */
static int read_line(int folder, struct buf *text, struct stat_line *line)
{
    buf_clear(text);
    if (read_at(folder, "stat", STAT_MAX, text))
        return -1;
    if (read_stat(buf_span(text), line))
        return 0;
    errno = EINVAL;
    return -1;
}

static bool has_ended(void)
{
    return errno == ENOENT || errno == ESRCH;
}

/* cgroup v1 shows a main thread that has exited in no cgroup, while the other threads of
 * the process run on in theirs. */
static bool has_exited(const struct stat_line *line)
{
    return line->state == 'Z' || line->state == 'X';
}

static void take_container(struct usage_place *place, struct span text,
                           const struct stat_line *line, struct arena *a)
{
    struct process_container c = process_container_of(text);
    bool outside = c.kind == PROCESS_CONTAINER_NONE && !has_exited(line);
    place->kind = c.kind == PROCESS_CONTAINER_FOUND ? USAGE_CONTAINER
                  : outside                         ? USAGE_OUTSIDE
                                                    : USAGE_UNMAPPED;
    if (place->kind != USAGE_CONTAINER)
        return;
    place->pod_uid = arena_copy(a, span_of(c.pod_uid));
    place->container_id = arena_copy(a, span_of(c.id));
}

static void read_place(const struct process_reader *r, struct usage_place *place,
                       struct arena *a)
{
    cleanup_buf struct buf text = {0}, cgroup = {0};
    struct stat_line before = {0}, after = {0};
    cleanup_close int folder = open_process(r, place->pid.pid);
    place->kind = USAGE_ENDED;
    if (folder < 0 || read_line(folder, &text, &before)) {
        place->kind = has_ended() ? USAGE_ENDED : USAGE_UNMAPPED;
        return;
    }
    place->pid.started = before.started;
    place->name = arena_copy(a, before.name);
    if (read_at(folder, "cgroup", PROCESS_CONTAINER_TEXT, &cgroup)) {
        place->kind = has_ended() ? USAGE_ENDED : USAGE_UNMAPPED;
        return;
    }
    if (read_line(folder, &text, &after) || after.started != before.started) {
        place->kind = USAGE_UNMAPPED; /* seen again in the next sample, or not at all */
        return;
    }
    take_container(place, buf_span(&cgroup), &after, a);
}

/* The second process of the first PID namespace, and of no other one, is kthreadd. Its
 * name is readable where the links in /proc/PID/ns are not. */
int process_reader_check(const struct process_reader *r, struct err *err)
{
    cleanup_buf struct buf text = {0};
    struct stat_line line = {0};
    cleanup_close int folder = open_process(r, 2);
    if (folder >= 0 && read_line(folder, &text, &line) == 0 &&
        span_eq(line.name, SPAN("kthreadd")))
        return 0;
    return err_set(err, ERR_UNAVAILABLE,
                   "%s is not that of the host: the pod needs hostPID: true", r->proc);
}

static int by_pid(const void *a, const void *b)
{
    int64_t x = ((const struct usage_place *)a)->pid.pid;
    int64_t y = ((const struct usage_place *)b)->pid.pid;
    return (x > y) - (x < y);
}

void process_reader_places(const struct process_reader *r, const struct gpu_sample *s,
                           struct arena *a, const struct usage_place **places, size_t *n)
{
    size_t all = 0, kept = 0;
    bool is_host = process_reader_check(r, &(struct err){0}) == 0;
    for (size_t i = 0; i < s->n_cards; i++)
        all += s->cards[i].n_processes;
    struct usage_place *list = arena_zalloc(a, (all + 1) * sizeof *list);
    all = 0;
    for (size_t i = 0; i < s->n_cards; i++)
        for (size_t k = 0; k < s->cards[i].n_processes; k++)
            if (s->cards[i].state != GPU_MIG)
                list[all++].pid.pid = s->cards[i].processes[k].pid;
    if (all)
        qsort(list, all, sizeof *list, by_pid);
    for (size_t i = 0; i < all; i++) {
        if (i && list[i].pid.pid == list[i - 1].pid.pid)
            continue;
        struct usage_place *place = &list[kept++];
        *place = (struct usage_place){.pid = list[i].pid, .kind = USAGE_UNMAPPED};
        if (is_host)
            read_place(r, place, a);
    }
    *places = list;
    *n = kept;
}

bool process_reader_is_alive(const struct process_reader *r, const struct usage_pid *pid)
{
    cleanup_buf struct buf text = {0};
    struct stat_line line = {0};
    cleanup_close int folder = open_process(r, pid->pid);
    return folder >= 0 && read_line(folder, &text, &line) == 0 &&
           line.started == pid->started;
}
