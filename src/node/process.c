/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc and the kubelet's links, and kills one process. */
#include "node/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

enum {
    ID_MIN = 32, /* shortest container ID; no other cgroup has such a name */
    STAT_MAX = 4096,
    STATUS_MAX = 64 * 1024,
    CGROUP_MAX = 64 * 1024, /* cgroup v1 has some 14 lines */
    TASKS_MAX = 64,         /* threads of a process that are looked at */
    CGROUPS_MAX = 8192,     /* folders that are looked at, */
    CGROUP_DEPTH = 16,      /* so many below each other */
    CHILDREN_MAX = 64,      /* and in a container */
    STARTED = 22,           /* field of /proc/PID/stat: the start time */
    AFTER_COMM = 3          /* the field after the name, which is in parentheses */
};

/* The kernel's mark of a file or cgroup that is no more. */
static const struct span deleted = SPAN(" (deleted)");

/* -- the container of a cgroup -- */

/* "<ID>", or "<runtime>-<ID>.scope". */
#define CONTAINER "([0-9a-f]+|[^/]*-([0-9a-f]+)\\.scope)"
/* "kubepods-burstable-pod<UID>.slice", where the UID has no '-'; a kubelet with a
 * --cgroup-root has further words before "kubepods". A runtime and a container can follow
 * after ':'. */
#define SLICE "/([^/:]*-)?kubepods(-[^/:]*)?-pod([A-Za-z0-9_]+)\\.slice(:[^:/]*:|:|/|$)"
/* "pod<UID>" in kubepods, or in burstable or besteffort in kubepods. What is above the root
 * of the reader's namespace is "..". */
#define FOLDER "/(kubepods|\\.\\.)/((burstable|besteffort)/)?pod([A-Za-z0-9_-]+)(/|$)"

/* The outermost pod in a path, and its container; or a container in the pod of the reader,
 * whose name the path lacks. */
static const char pattern[] =
    "(" SLICE "|" FOLDER ")(" CONTAINER "(/|$))?|^/\\.\\./" CONTAINER "$";
enum { UID = 4, UID_OF_FOLDER = 9, ID = 12, OWN_ID = 15, GROUPS = OWN_ID + 2 };

static struct span group(struct span path, const regmatch_t *m)
{
    if (m->rm_so < 0)
        return (struct span){0};
    return (struct span){path.p + m->rm_so, (size_t)(m->rm_eo - m->rm_so)};
}

/* The ID of a CONTAINER. */
static struct span id_of(struct span path, const regmatch_t *m)
{
    struct span id = group(path, m[1].rm_so < 0 ? m : m + 1);
    return id.n < ID_MIN ? (struct span){0} : id;
}

/* Where one path is. The strings are in the path and in the arena. */
static struct usage_place read_path(const regex_t *re, struct span path, struct arena *a)
{
    struct usage_place p = {.kind = USAGE_OUTSIDE};
    if (span_ends(path, deleted)) /* cgroup v2: the process outlived it */
        path.n -= deleted.n;
    regmatch_t m[GROUPS] = {{.rm_eo = (regoff_t)path.n}};
    if (!span_starts(path, SPAN("/")))
        p.kind = USAGE_UNMAPPED;
    else if (regexec(re, path.p, GROUPS, m, REG_STARTEND) == 0) {
        p.pod_uid =
            arena_copy(a, group(path, &m[m[UID].rm_so < 0 ? UID_OF_FOLDER : UID]));
        p.container_id = id_of(path, &m[ID]);
        if (p.pod_uid.n)
            p.kind = USAGE_CONTAINER;
        else if (id_of(path, &m[OWN_ID]).n)
            p.kind = USAGE_UNMAPPED;
        for (size_t i = 0; i < p.pod_uid.n; i++) /* '_' is systemd's '-' */
            if (p.pod_uid.p[i] == '_')
                ((char *)p.pod_uid.p)[i] = '-';
    }
    return p;
}

/* The place in the text of /proc/PID/cgroup. Hierarchies of cgroup v1 can lack each other's
 * cgroups. */
static struct usage_place read_cgroup(const regex_t *re, struct span text,
                                      struct arena *a)
{
    const struct usage_place unmapped = {.kind = USAGE_UNMAPPED};
    struct usage_place p = {.kind = USAGE_OUTSIDE};
    if (!text.n || memchr(text.p, 0, text.n))
        return unmapped;
    while (text.n) { /* "<number>:<controllers>:<path>" */
        struct span path = span_cut(&text, '\n'), number = span_cut(&path, ':');
        struct usage_place line = unmapped;
        int64_t hierarchy;
        span_cut(&path, ':');
        if (path.p && span_i64(number, &hierarchy) && hierarchy >= 0)
            line = read_path(re, path, a);
        const bool same = span_eq(p.pod_uid, line.pod_uid) &&
                          (!p.container_id.n || !line.container_id.n ||
                           span_eq(p.container_id, line.container_id));
        if (line.kind == USAGE_OUTSIDE)
            continue;
        if (p.kind == USAGE_OUTSIDE)
            p = line;
        else if (line.kind == USAGE_UNMAPPED || !same)
            return unmapped;
        else if (!p.container_id.n)
            p.container_id = line.container_id;
    }
    return p;
}

/* -- the names of containers -- */

static const struct span log_suffix = SPAN(".log");

/* Reads the name of one link. False: it is none of a container. Borrowed from `link`. */
static bool read_link_name(struct span link, struct usage_name *name)
{
    if (!span_ends(link, log_suffix))
        return false;
    link.n -= log_suffix.n;
    *name = (struct usage_name){.pod = span_cut(&link, '_')};
    name->ns = span_cut(&link, '_');
    const char *dash = link.n ? memrchr(link.p, '-', link.n) : NULL;
    if (!dash)
        return false;
    name->container = (struct span){link.p, (size_t)(dash - link.p)};
    name->container_id = (struct span){dash + 1, link.n - name->container.n - 1};
    return name->pod.n && name->ns.n && name->container.n &&
           name->container_id.n >= ID_MIN &&
           strspn(name->container_id.p, "0123456789abcdef") == name->container_id.n &&
           !memchr(link.p, '_', link.n);
}

/* Reads the target of a link whose name is cut,
 * ".../<namespace>_<pod>_<pod UID>/<container>/<n>.log". Only the pod's UID and the begin of the
 * ID, which can be empty, say which container it is of. In the arena. */
static bool read_cut_link(int dir, struct span link, struct arena *a,
                          struct usage_name *name)
{
    char target[PATH_MAX];
    struct span parts[3]; /* the last three components, from the end */
    ssize_t n = readlinkat(dir, link.p, target, sizeof target);
    if (n <= 0 || n == (ssize_t)sizeof target)
        return false;
    struct span rest = {target, (size_t)n};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        const char *slash = rest.n ? memrchr(rest.p, '/', rest.n) : NULL;
        if (!slash)
            return false;
        parts[i] = (struct span){slash + 1, (size_t)(rest.p + rest.n - slash - 1)};
        rest.n = (size_t)(slash - rest.p);
    }
    name->container = arena_copy(a, parts[1]);
    rest = arena_copy(a, parts[2]);
    name->ns = span_cut(&rest, '_');
    name->pod = span_cut(&rest, '_');
    name->pod_uid = rest;
    cleanup_free char *whole = xasprintf("%.*s_%.*s_%.*s-", SPAN_ARG(name->pod),
                                         SPAN_ARG(name->ns), SPAN_ARG(name->container));
    link.n -= log_suffix.n;
    size_t same = strlen(whole) < link.n ? strlen(whole) : link.n;
    name->container_id = (struct span){link.p + same, link.n - same};
    return name->ns.n && name->pod.n && name->pod_uid.n && name->container.n &&
           !strncmp(whole, link.p, same);
}

int process_names_read(const char *host_root, struct arena *a,
                       const struct usage_name **names, size_t *n, struct err *err)
{
    cleanup_free char *path = xasprintf("%s/" PROCESS_NAMES_FOLDER, host_root);
    cleanup_folder DIR *dir = opendir(path);
    cleanup_free struct usage_name *list = NULL;
    size_t cap = 0;
    struct dirent *entry;
    *n = 0;
    if (!dir)
        return err_set(err, ERR_UNAVAILABLE, "%s: %m", path);
    while (*n < USAGE_MAX_IDS && (entry = readdir(dir))) {
        struct usage_name name = {0};
        struct span link = arena_copy(a, span_of(entry->d_name));
        if (link.n == NAME_MAX ? !read_cut_link(dirfd(dir), link, a, &name)
                               : !read_link_name(link, &name))
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

/* What /proc/PID/stat has. */
struct stat_line {
    uint64_t started;
    char name[64]; /* comm, which the kernel cuts */
    char state;
};

/* "PID (comm) S PPID ...": the name may have any characters, also ')' and ' '. ERR_NOT_FOUND: the
 * process has ended. */
static int read_line(const char *host_root, int64_t pid, struct stat_line *line,
                     struct err *err)
{
    cleanup_free char *path = xasprintf("%s/proc/%" PRId64 "/stat", host_root, pid);
    cleanup_buf struct buf text = {0};
    int64_t started = -1;
    if (file_read(path, STAT_MAX, &text, err))
        return -1;
    const char *first = memchr(text.n ? text.p : "", '(', text.n);
    const char *last = text.n ? memrchr(text.p, ')', text.n) : NULL;
    if (first && last && last > first && span_starts(span_of(last + 1), SPAN(" "))) {
        struct span rest = span_of(last + 2);
        snprintf(line->name, sizeof line->name, "%.*s", (int)(last - first - 1),
                 first + 1);
        line->state = *rest.p;
        for (int i = AFTER_COMM; i < STARTED && rest.p; i++)
            span_cut(&rest, ' ');
        if (!rest.p || !span_i64(span_cut(&rest, ' '), &started))
            started = -1;
    }
    if (started < 0)
        return err_set(err, ERR_INVALID, "%s is malformed", path);
    line->started = (uint64_t)started;
    return 0;
}

/* cgroup v1 shows a main thread that has exited in no cgroup, while the other threads of
 * the process run on in theirs. */
static bool has_exited(const struct stat_line *line)
{
    return line->state == 'Z' || line->state == 'X';
}

/* The place of one of the other threads; USAGE_UNMAPPED: none of them says one. */
static struct usage_place read_threads(const char *host_root, const regex_t *re,
                                       int64_t pid, struct arena *a)
{
    struct usage_place p = {.kind = USAGE_UNMAPPED};
    cleanup_free char *path = xasprintf("%s/proc/%" PRId64 "/task", host_root, pid);
    cleanup_folder DIR *dir = opendir(path);
    cleanup_buf struct buf cgroup = {0};
    struct dirent *entry;
    for (int i = 0; i < TASKS_MAX && dir && (entry = readdir(dir)); i++) {
        cleanup_free char *file = xasprintf("%s/%s/cgroup", path, entry->d_name);
        buf_clear(&cgroup);
        if (entry->d_name[0] != '.' && !file_read(file, CGROUP_MAX, &cgroup, NULL))
            p = read_cgroup(re, buf_span(&cgroup), a);
        if (p.kind == USAGE_CONTAINER)
            break;
        p.kind = USAGE_UNMAPPED;
    }
    p.container_id = arena_copy(a, p.container_id);
    return p;
}

static void read_place(const char *host_root, const regex_t *re,
                       struct usage_place *place, struct arena *a)
{
    cleanup_buf struct buf cgroup = {0};
    cleanup_free char *path =
        xasprintf("%s/proc/%" PRId64 "/cgroup", host_root, place->pid.pid);
    struct stat_line before = {0}, after;
    struct err err;
    int rc = read_line(host_root, place->pid.pid, &before, &err);
    place->pid.started = before.started;
    place->name = arena_copy(a, span_of(before.name));
    if (rc || file_read(path, CGROUP_MAX, &cgroup, &err)) {
        if (err.code == ERR_NOT_FOUND)
            place->kind = USAGE_ENDED;
        return;
    }
    struct usage_place p = read_cgroup(re, buf_span(&cgroup), a);
    if (p.kind != USAGE_CONTAINER && has_exited(&before))
        p = read_threads(host_root, re, place->pid.pid, a);
    /* The base name of the executable. That of a process with another user or more capabilities
     * needs CAP_SYS_PTRACE. */
    char target[PATH_MAX];
    cleanup_free char *exe =
        xasprintf("%s/proc/%" PRId64 "/exe", host_root, place->pid.pid);
    ssize_t n = readlink(exe, target, sizeof target);
    struct span name = {target, n > 0 && n < (ssize_t)sizeof target ? (size_t)n : 0};
    if (span_ends(name, deleted))
        name.n -= deleted.n;
    const char *slash = name.n ? memrchr(name.p, '/', name.n) : NULL;
    if (slash)
        name = (struct span){slash + 1, (size_t)(name.p + name.n - slash - 1)};
    if (read_line(host_root, place->pid.pid, &after, &err) ||
        after.started != before.started)
        return; /* seen again in the next sample, or not at all */
    if (name.n)
        place->name = arena_copy(a, name);
    if (p.kind == USAGE_OUTSIDE && has_exited(&after))
        return;
    place->kind = p.kind;
    place->pod_uid = p.pod_uid;
    place->container_id = arena_copy(a, p.container_id);
}

/* The second process of the first PID namespace, and of no other one, is kthreadd. Its
 * name is readable where the links in /proc/PID/ns are not. */
int process_check_host(const char *host_root, struct err *err)
{
    struct stat_line line;
    if (read_line(host_root, 2, &line, NULL) == 0 && !strcmp(line.name, "kthreadd"))
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

void process_places(const char *host_root, const struct gpu_sample *s, struct arena *a,
                    struct usage_place **places, size_t *n)
{
    size_t all = 0, kept = 0;
    regex_t re;
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
    if (regcomp(&re, pattern, REG_EXTENDED))
        abort();
    for (size_t i = 0; i < all; i++) {
        if (i && list[i].pid.pid == list[i - 1].pid.pid)
            continue;
        struct usage_place *place = &list[kept++];
        *place = (struct usage_place){.pid = list[i].pid, .kind = USAGE_UNMAPPED};
        if (is_host)
            read_place(host_root, &re, place, a);
    }
    regfree(&re);
    *places = list;
    *n = kept;
}

/* "NSpid:" has the pid in each namespace, the innermost last. The start time is compared after
 * the file was read: before that, it may be of another process. */
int64_t process_pid_in_namespace(const char *host_root, const struct usage_pid *pid)
{
    cleanup_buf struct buf status = {0};
    cleanup_free char *path =
        xasprintf("%s/proc/%" PRId64 "/status", host_root, pid->pid);
    struct stat_line line;
    int64_t in_namespace = -1;
    if (file_read(path, STATUS_MAX, &status, NULL))
        return -1;
    for (struct span rest = buf_span(&status); rest.n;) {
        struct span pids = span_cut(&rest, '\n');
        if (!span_starts(pids, SPAN("NSpid:")))
            continue;
        while (pids.n)
            if (!span_i64(span_cut(&pids, '\t'), &in_namespace))
                in_namespace = -1;
    }
    if (read_line(host_root, pid->pid, &line, NULL) || line.started != pid->started)
        return -1;
    return in_namespace;
}

/* -- the cgroups of the host -- */

struct cgroup_walk {
    const regex_t *re;
    bool (*wants)(void *ctx, struct span pod_uid);
    void *ctx;
    size_t root; /* length of its path */
    struct arena *a;
    struct process_cgroup *list;
    size_t n, cap, folders;
};

static bool has_process(const char *cgroup)
{
    char byte;
    cleanup_free char *path = xasprintf("%s/cgroup.procs", cgroup);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && read(fd, &byte, 1) == 1;
}

static bool is_folder(const struct dirent *entry)
{
    return entry->d_type == DT_DIR && entry->d_name[0] != '.';
}

/* The cgroup that the runtime started the container in: its own, or "container" in it (crun, which
 * can give it another name). In the arena. */
static const char *find_leaf(const char *path, struct arena *a)
{
    cleanup_folder DIR *dir = has_process(path) ? NULL : opendir(path);
    cleanup_free char *leaf = NULL;
    struct dirent *entry;
    for (int n = 0; dir && n < CHILDREN_MAX && (entry = readdir(dir));) {
        if (!is_folder(entry))
            continue;
        cleanup_free char *child = xasprintf("%s/%s", path, entry->d_name);
        if (has_process(child) && (!leaf || !strcmp(entry->d_name, "container"))) {
            free(leaf);
            leaf = steal(&child);
        }
        n++;
    }
    return arena_copy(a, span_of(leaf ? leaf : path)).p;
}

/* A container can make any cgroup in its own, so the walk ends there. */
static void walk_cgroups(struct cgroup_walk *w, const char *path, int depth, bool in_pod)
{
    cleanup_folder DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && w->folders <= CGROUPS_MAX && (entry = readdir(dir))) {
        if (!is_folder(entry) || strstr(entry->d_name, "conmon-"))
            continue;
        w->folders++;
        cleanup_free char *child = xasprintf("%s/%s", path, entry->d_name);
        const struct usage_place p = read_path(w->re, span_of(child + w->root), w->a);
        const bool is_pod = p.kind == USAGE_CONTAINER;
        if (is_pod && !w->wants(w->ctx, p.pod_uid))
            continue;
        if (is_pod && (p.container_id.n || !in_pod)) {
            MEM_GROW(w->list, w->cap, w->n + 1);
            w->list[w->n++] =
                (struct process_cgroup){p.pod_uid, arena_copy(w->a, p.container_id),
                                        arena_copy(w->a, span_of(child)).p,
                                        p.container_id.n ? find_leaf(child, w->a) : NULL};
        }
        if (!p.container_id.n && !in_pod && depth < CGROUP_DEPTH)
            walk_cgroups(w, child, depth + 1, is_pod);
    }
}

int process_cgroups(const char *root, bool (*wants)(void *ctx, struct span pod_uid),
                    void *ctx, struct arena *a, const struct process_cgroup **list,
                    size_t *n, struct err *err)
{
    regex_t re;
    struct cgroup_walk w = {
        .re = &re, .wants = wants, .ctx = ctx, .root = strlen(root), .a = a};
    cleanup_free char *mark = xasprintf("%s/cgroup.controllers", root);
    *n = 0;
    if (access(mark, F_OK)) /* of no other version, and in the root, too */
        return err_set(err, ERR_NOT_FOUND, "%s is not the root of cgroup v2: %m", root);
    if (regcomp(&re, pattern, REG_EXTENDED))
        abort();
    walk_cgroups(&w, root, 1, false);
    regfree(&re);
    struct process_cgroup *kept = arena_alloc(a, (w.n + 1) * sizeof *kept);
    if (w.n)
        memcpy(kept, w.list, w.n * sizeof *kept);
    free(w.list);
    *list = kept;
    if (w.folders > CGROUPS_MAX)
        return err_set(err, ERR_TOO_LARGE, "%s has more than %d cgroups", root,
                       CGROUPS_MAX);
    *n = w.n;
    return 0;
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
    struct stat_line line;
    if (pid->pid <= 1 || pid->pid > INT_MAX || pid->pid == getpid())
        return err_set(err, ERR_INVALID, "process %lld is never killed",
                       (long long)pid->pid);
    /* The wrappers of glibc 2.36 are newer than the oldest kernel headers that we build with. */
    cleanup_close int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid->pid, 0);
    if (fd < 0)
        return fail_signal(pid, "pidfd_open", err);
    if (read_line("", pid->pid, &line, NULL) || line.started != pid->started)
        return err_set(err, ERR_NOT_FOUND, "process %lld has ended", (long long)pid->pid);
    if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0))
        return fail_signal(pid, "pidfd_send_signal", err);
    return 0;
}
