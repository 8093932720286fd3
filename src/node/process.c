/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc and the kubelet's links, and kills one process. */
#include "node/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    ID_MIN = 32, /* shortest container ID; no other cgroup has such a name */
    STAT_MAX = 4096,
    STARTED = 22,  /* field of /proc/PID/stat: the start time */
    AFTER_COMM = 3 /* the field after the name, which is in parentheses */
};

/* -- the container of a cgroup -- */

static bool ends(struct span s, struct span suffix)
{
    return s.n >= suffix.n && !memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n);
}

static struct span without(struct span s, size_t head, size_t tail)
{
    return (struct span){s.p + head, s.n - head - tail};
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A UID as in the name of a cgroup; '_' is systemd's '-'. */
static bool copy_uid(struct span s, char out[PROCESS_CONTAINER_ID])
{
    if (!s.n || s.n >= PROCESS_CONTAINER_ID)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (!is_word(s.p[i]) && s.p[i] != '-' && s.p[i] != '_')
            return false;
        out[i] = s.p[i] == '_' ? '-' : s.p[i];
    }
    out[s.n] = '\0';
    return true;
}

static bool is_id(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!(s.p[i] >= '0' && s.p[i] <= '9') && !(s.p[i] >= 'a' && s.p[i] <= 'f'))
            return false;
    return s.n >= ID_MIN;
}

static bool copy_id(struct span s, char out[PROCESS_CONTAINER_ID])
{
    if (!is_id(s) || s.n >= PROCESS_CONTAINER_ID)
        return false;
    memcpy(out, s.p, s.n);
    out[s.n] = '\0';
    return true;
}

/* "<ID>", or "<runtime>-<ID>.scope". */
static bool read_container(struct span name, char id[PROCESS_CONTAINER_ID])
{
    if (!ends(name, SPAN(".scope")))
        return copy_id(name, id);
    name = without(name, 0, sizeof ".scope" - 1);
    for (size_t i = name.n; i > 0; i--)
        if (name.p[i - 1] == '-')
            return copy_id(without(name, i, 0), id);
    return false;
}

/* Is "kubepods" one of the words between the '-' of a slice's name? A kubelet with a
 * --cgroup-root has further words before it. */
static bool has_kubepods(struct span slice)
{
    while (slice.p) {
        if (span_eq(span_cut(&slice, '-'), SPAN("kubepods")))
            return true;
    }
    return false;
}

/* "kubepods-burstable-pod<UID>.slice", where the UID has no '-'. */
static bool read_pod_slice(struct span name, char uid[PROCESS_CONTAINER_ID])
{
    static const size_t pod = sizeof "-pod" - 1;
    if (!ends(name, SPAN(".slice")))
        return false;
    name = without(name, 0, sizeof ".slice" - 1);
    size_t at = name.n;
    while (at && name.p[at - 1] != '-')
        at--;
    if (!at || !span_starts(without(name, at - 1, 0), SPAN("-pod")))
        return false;
    return has_kubepods((struct span){name.p, at - 1}) &&
           copy_uid(without(name, at - 1 + pod, 0), uid);
}

/* "pod<UID>" in kubepods, or in burstable or besteffort in kubepods. What is above the
 * root of the reader's namespace is "..". */
static bool read_pod_folder(const struct span last[3], char uid[PROCESS_CONTAINER_ID])
{
    struct span parent = last[1], grandparent = last[2];
    bool class =
        span_eq(parent, SPAN("burstable")) || span_eq(parent, SPAN("besteffort"));
    struct span above = class ? grandparent : parent;
    bool in = span_eq(parent, SPAN("..")) || span_eq(parent, SPAN("kubepods")) ||
              span_eq(above, SPAN("..")) || span_eq(above, SPAN("kubepods"));
    return in && span_starts(last[0], SPAN("pod")) &&
           copy_uid(without(last[0], 3, 0), uid);
}

/* One path. */
static struct process_container read_path(struct span path)
{
    struct process_container c = {.kind = PROCESS_CONTAINER_NONE};
    struct span last[3] = {0}; /* this component, its parent, and the parent of that */
    if (!span_starts(path, SPAN("/"))) {
        c.kind = PROCESS_CONTAINER_UNCLEAR;
        return c;
    }
    if (ends(path, SPAN(" (deleted)"))) /* cgroup v2: the process outlived it */
        path = without(path, 0, sizeof " (deleted)" - 1);
    while (path.p) {
        last[2] = last[1];
        last[1] = last[0];
        last[0] = span_cut(&path, '/');
        if (c.kind == PROCESS_CONTAINER_FOUND) {
            read_container(last[0], c.id);
            return c;
        }
        struct span rest = last[0], slice = span_cut(&rest, ':');
        if (read_pod_slice(slice, c.pod_uid) || read_pod_folder(last, c.pod_uid))
            c.kind = PROCESS_CONTAINER_FOUND;
        if (c.kind == PROCESS_CONTAINER_FOUND && rest.p) {
            span_cut(&rest, ':'); /* the runtime */
            read_container(rest, c.id);
            return c;
        }
    }
    /* A container in the pod of the reader, whose name the path lacks. */
    if (span_eq(last[1], SPAN("..")) && last[2].p && !last[2].n && read_container(last[0], c.id))
        c = (struct process_container){.kind = PROCESS_CONTAINER_UNCLEAR};
    return c;
}

/* Joins the paths of two hierarchies of cgroup v1, which can lack each other's cgroups. */
static void join(struct process_container *c, const struct process_container *line)
{
    bool same = !strcmp(c->pod_uid, line->pod_uid) &&
                (!c->id[0] || !line->id[0] || !strcmp(c->id, line->id));
    if (line->kind == PROCESS_CONTAINER_NONE || c->kind == PROCESS_CONTAINER_UNCLEAR)
        return;
    if (c->kind == PROCESS_CONTAINER_NONE)
        *c = *line;
    else if (line->kind == PROCESS_CONTAINER_UNCLEAR || !same)
        *c = (struct process_container){.kind = PROCESS_CONTAINER_UNCLEAR};
    else if (!c->id[0])
        memcpy(c->id, line->id, sizeof c->id);
}

struct process_container process_container_of(struct span text)
{
    static const struct process_container unclear = {.kind = PROCESS_CONTAINER_UNCLEAR};
    struct process_container c = {.kind = PROCESS_CONTAINER_NONE};
    bool any = false;
    if (text.n > PROCESS_CONTAINER_TEXT || memchr(text.n ? text.p : "", 0, text.n))
        return unclear;
    while (text.p && text.n) { /* "<number>:<controllers>:<path>" */
        struct span rest = span_cut(&text, '\n'), number = span_cut(&rest, ':');
        int64_t hierarchy;
        if (!rest.p || !span_i64(number, &hierarchy) || hierarchy < 0)
            return unclear;
        span_cut(&rest, ':');
        if (!rest.p)
            return unclear;
        struct process_container line = read_path(rest);
        join(&c, &line);
        any = true;
    }
    return any ? c : unclear;
}

/* -- the names of containers -- */

bool process_name_parse(struct span link, struct usage_name *name)
{
    if (!ends(link, SPAN(".log")))
        return false;
    link = without(link, 0, sizeof ".log" - 1);
    *name = (struct usage_name){.pod = span_cut(&link, '_')};
    name->ns = span_cut(&link, '_');
    const char *dash = link.n ? memrchr(link.p, '-', link.n) : NULL;
    if (!dash)
        return false;
    name->container = (struct span){link.p, (size_t)(dash - link.p)};
    name->container_id = (struct span){dash + 1, link.n - name->container.n - 1};
    return name->pod.n && name->ns.n && name->container.n && is_id(name->container_id) &&
           !memchr(link.p, '_', link.n);
}

static void close_folder(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

int process_names_read(const char *host_root, struct arena *a,
                         const struct usage_name **names, size_t *n, struct err *err)
{
    cleanup_free char *path = xasprintf("%s/" PROCESS_NAMES_FOLDER, host_root);
    __attribute__((cleanup(close_folder))) DIR *dir = opendir(path);
    cleanup_free struct usage_name *list = NULL;
    size_t cap = 0;
    struct dirent *entry;
    *n = 0;
    if (!dir)
        return err_set(err, ERR_UNAVAILABLE, "%s: %m", path);
    while (*n < USAGE_MAX_IDS && (entry = readdir(dir))) {
        struct usage_name name;
        if (!process_name_parse(arena_copy(a, span_of(entry->d_name)), &name))
            continue;
        MEM_GROW(list, cap, *n + 1);
        list[(*n)++] = name;
    }
    struct usage_name *kept = arena_alloc(a, (*n + 1) * sizeof *kept);
    if (*n)
        memcpy(kept, list, *n * sizeof *kept);
    *names = kept;
    return 0;
}

/* -- /proc -- */

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

static int open_process(const char *host_root, int64_t pid)
{
    cleanup_free char *path = xasprintf("%s/proc/%" PRId64, host_root, pid);
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

static void read_place(const char *host_root, struct usage_place *place,
                       struct arena *a)
{
    cleanup_buf struct buf text = {0}, cgroup = {0};
    struct stat_line before = {0}, after = {0};
    cleanup_close int folder = open_process(host_root, place->pid.pid);
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
    struct process_container c = process_container_of(buf_span(&cgroup));
    bool outside = c.kind == PROCESS_CONTAINER_NONE && !has_exited(&after);
    place->kind = c.kind == PROCESS_CONTAINER_FOUND ? USAGE_CONTAINER
                  : outside                         ? USAGE_OUTSIDE
                                                    : USAGE_UNMAPPED;
    if (place->kind != USAGE_CONTAINER)
        return;
    place->pod_uid = arena_copy(a, span_of(c.pod_uid));
    place->container_id = arena_copy(a, span_of(c.id));
}

/* The second process of the first PID namespace, and of no other one, is kthreadd. Its
 * name is readable where the links in /proc/PID/ns are not. */
int process_check_host(const char *host_root, struct err *err)
{
    cleanup_buf struct buf text = {0};
    struct stat_line line = {0};
    cleanup_close int folder = open_process(host_root, 2);
    if (folder >= 0 && read_line(folder, &text, &line) == 0 &&
        span_eq(line.name, SPAN("kthreadd")))
        return 0;
    return err_set(err, ERR_UNAVAILABLE,
                   "%s/proc is not that of the host: the pod needs hostPID: true",
                   host_root);
}

static int by_pid(const void *a, const void *b)
{
    int64_t x = ((const struct usage_place *)a)->pid.pid;
    int64_t y = ((const struct usage_place *)b)->pid.pid;
    return (x > y) - (x < y);
}

void process_places(const char *host_root, const struct gpu_sample *s,
                           struct arena *a, const struct usage_place **places, size_t *n)
{
    size_t all = 0, kept = 0;
    bool is_host = process_check_host(host_root, &(struct err){0}) == 0;
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
            read_place(host_root, place, a);
    }
    *places = list;
    *n = kept;
}

/* Whether the pid is still that of the process which was measured. */
static bool is_same_process(const struct usage_pid *pid)
{
    cleanup_buf struct buf text = {0};
    struct stat_line line = {0};
    cleanup_close int folder = open_process("", pid->pid);
    return folder >= 0 && read_line(folder, &text, &line) == 0 &&
           line.started == pid->started;
}

/* -- kill -- */

static int fail_signal(const struct usage_pid *pid, const char *call, struct err *err)
{
    enum err_code code = errno == ESRCH   ? ERR_NOT_FOUND
                         : errno == EPERM ? ERR_FORBIDDEN
                                          : ERR_INTERNAL;
    return err_set(err, code, "%s of process %lld: %s", call, (long long)pid->pid,
                   strerror(errno));
}

int process_kill(const struct usage_pid *pid, struct err *err)
{
    if (pid->pid <= 1 || pid->pid > INT_MAX || pid->pid == getpid())
        return err_set(err, ERR_INVALID, "process %lld is never killed",
                       (long long)pid->pid);
    /* The wrappers of glibc 2.36 are newer than the oldest kernel headers that we build with. */
    cleanup_close int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid->pid, 0);
    if (fd < 0)
        return fail_signal(pid, "pidfd_open", err);
    if (!is_same_process(pid))
        return err_set(err, ERR_NOT_FOUND, "process %lld has ended", (long long)pid->pid);
    if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0))
        return fail_signal(pid, "pidfd_send_signal", err);
    return 0;
}
