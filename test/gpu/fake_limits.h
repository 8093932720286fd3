/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * The driver's limits of memory for a cgroup, which the fakes of NVML and CUDA share: one account
 * for each cgroup and card, in the file that FAKE_LIMITS names, which the first user makes. Without
 * the variable there are none.
 *
 * A cgroup is a folder below FAKE_CGROUP_ROOT (/sys/fs/cgroup), which may be any folder, and is known
 * by its path from there: "/pod/leaf"; the root is "/". A process
 * is in the cgroup FAKE_CGROUP, a path; else, where FAKE_CGROUP_ROOT is given, in the one whose
 * cgroup.procs names it; else in that of /proc/self/cgroup.
 *
 * - A hard limit refuses what its cgroup and those below it would have beyond it; not managed memory.
 * - On the cgroup of the process itself it is the size of the card, on a parent it is not seen.
 * - The limits of a cgroup go with its folder: another folder of that name has none. A soft limit is
 *   then left behind in the ancestors, each of which has the sum of those below it.
 */

enum {
    FAKE_LIMITS = 64,
    FAKE_MEMBERS = 64,
    FAKE_PATH = 512,
    FAKE_UUID = 48,
    FAKE_CARDS = 2
};
#define FAKE_NO_LIMIT 0xFFFFFFFFFFFFFFFFull

struct fake_limit {
    char path[FAKE_PATH]; /* empty: unused */
    char uuid[FAKE_UUID];
    unsigned long long
        folder[2]; /* which folder it was: its inode, and when it was made */
    unsigned long long soft, hard;
    unsigned long long
        below; /* soft limits of cgroups below it, also of those that went */
};
struct fake_member {
    pid_t pid;
    char path[FAKE_PATH]; /* its cgroup */
    struct {
        char uuid[FAKE_UUID];
        unsigned long long used;
    } cards[FAKE_CARDS];
};
struct fake_limits {
    unsigned long long
        root[2]; /* the folder of the root, for whom the cgroups are seen */
    struct fake_limit limits[FAKE_LIMITS];
    struct fake_member members[FAKE_MEMBERS];
};

/* Copies a path; a longer one ends the program. */
static inline void fake_put_path(char out[FAKE_PATH], const char *path)
{
    size_t n = strlen(path) + 1;
    if (n > FAKE_PATH)
        abort();
    memcpy(out, path, n);
}

static inline const char *fake_cgroup_root(void)
{
    const char *root = getenv("FAKE_CGROUP_ROOT");
    return root ? root : "/sys/fs/cgroup";
}

/* Is the cgroup `path` the cgroup `at`, or below it? */
static inline bool fake_is_below(const char *path, const char *at)
{
    size_t n = strcmp(at, "/") ? strlen(at) : 0;
    return !strncmp(path, at, n) && (path[n] == '\0' || path[n] == '/');
}

/* The cgroup of a folder. False: it is not below the root. */
static inline bool fake_cgroup_of(const char *folder, char path[FAKE_PATH])
{
    const char *root = fake_cgroup_root();
    bool is = fake_is_below(folder, root);
    if (is)
        fake_put_path(path, folder[strlen(root)] ? folder + strlen(root) : "/");
    return is;
}

/* Which folder the cgroup has, by statx, whose struct musl lacks: words 4 and 10 are the inode and
 * the seconds of its birth. False: it has none. */
static inline bool fake_folder(const char *path, unsigned long long folder[2])
{
    enum { TYPE = 0x1, INO = 0x100, BIRTH = 0x800 };
    unsigned long long words[32] = {0};
    char *whole = NULL;
    long rc = asprintf(&whole, "%s%s", fake_cgroup_root(), path) < 0
                  ? -1
                  : syscall(SYS_statx, AT_FDCWD, whole, 0, TYPE | INO | BIRTH, words);
    free(whole);
    if (rc || !S_ISDIR(words[3] >> 32 & 0xffff))
        return false;
    folder[0] = words[4];
    folder[1] = words[10] * 1000000000 + (words[11] & 0xffffffff);
    return true;
}

/* The account, mapped, with its lock in *fd. NULL: there is none. */
static inline struct fake_limits *fake_limits_open(int *fd)
{
    const char *path = getenv("FAKE_LIMITS");
    struct fake_limits *l;
    *fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (*fd < 0)
        return path ? abort(), NULL : NULL;
    l = ftruncate(*fd, sizeof *l)
            ? MAP_FAILED
            : mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    return l == MAP_FAILED ? abort(), NULL : l;
}

static inline void fake_limits_lock(int fd, short type)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    while (fcntl(fd, F_OFD_SETLKW, &l) != 0)
        if (errno != EINTR)
            abort();
}

/* A process that ends holds no memory: PF_EXITING is bit 2 of field 9 of its stat. */
static inline bool fake_has_ended(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return true;
    text[n] = '\0';
    char state = 'Z';
    unsigned flags = 0;
    const char *p = strrchr(text, ')');
    return !p || sscanf(p, ") %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2 ||
           state == 'Z' || state == 'X' || (flags & 4);
}

/* Ends the limits whose folder has gone. Who has another root, as in a container, does not know. */
static inline void fake_limits_expire(struct fake_limits *l)
{
    unsigned long long root[2];
    if (!fake_folder("/", root))
        return;
    if (!l->root[0])
        memcpy(l->root, root, sizeof root);
    if (memcmp(l->root, root, sizeof root) != 0)
        return;
    for (int i = 0; i < FAKE_LIMITS; i++) {
        struct fake_limit *limit = &l->limits[i];
        unsigned long long folder[2];
        if (*limit->path && (!fake_folder(limit->path, folder) ||
                             memcmp(folder, limit->folder, sizeof folder) != 0))
            *limit = (struct fake_limit){0};
    }
}

static inline struct fake_limit *fake_limits_find(struct fake_limits *l, const char *path,
                                                  const char *uuid)
{
    for (int i = 0; i < FAKE_LIMITS; i++)
        if (*path && !strcmp(l->limits[i].path, path) && !strcmp(l->limits[i].uuid, uuid))
            return &l->limits[i];
    return NULL;
}

/* What the processes of the cgroup and of those below it have. */
static inline unsigned long long fake_limits_used(const struct fake_limits *l,
                                                  const char *path, const char *uuid)
{
    unsigned long long sum = 0;
    for (int i = 0; i < FAKE_MEMBERS; i++)
        for (int k = 0; k < FAKE_CARDS; k++)
            if (l->members[i].pid && fake_is_below(l->members[i].path, path) &&
                !strcmp(l->members[i].cards[k].uuid, uuid))
                sum += l->members[i].cards[k].used;
    return sum;
}

static inline void fake_limits_reap(struct fake_limits *l)
{
    for (int i = 0; i < FAKE_MEMBERS; i++)
        if (l->members[i].pid && l->members[i].pid != getpid() &&
            fake_has_ended(l->members[i].pid))
            l->members[i] = (struct fake_member){0};
}

/* The limit of this cgroup on this card, made if there is none. */
static inline struct fake_limit *fake_limits_get(struct fake_limits *l, const char *path,
                                                 const char *uuid)
{
    struct fake_limit *found = fake_limits_find(l, path, uuid);
    for (int i = 0; i < FAKE_LIMITS && !found; i++)
        if (!*l->limits[i].path) {
            found = &l->limits[i];
            fake_put_path(found->path, path);
            snprintf(found->uuid, sizeof found->uuid, "%s", uuid);
            fake_folder(path, found->folder);
            found->hard = FAKE_NO_LIMIT;
        }
    return found ? found : (abort(), NULL);
}

/* Sets both; the ancestors have the change of the soft one. */
static inline void fake_limits_set(struct fake_limits *l, const char *path,
                                   const char *uuid, unsigned long long soft,
                                   unsigned long long hard)
{
    struct fake_limit *limit = fake_limits_get(l, path, uuid);
    unsigned long long change = soft - limit->soft;
    char above[FAKE_PATH];
    limit->soft = soft;
    limit->hard = hard;
    if (!soft && hard == FAKE_NO_LIMIT)
        *limit = (struct fake_limit){0};
    fake_put_path(above, path);
    for (char *end; change && strcmp(above, "/") && (end = strrchr(above, '/'));) {
        end[end == above] = '\0';
        fake_limits_get(l, above, uuid)->below += change;
    }
}

/* Searches the folders for a cgroup.procs that has the line. */
static inline bool fake_find_process(const char *folder, const char *pid,
                                     char path[FAKE_PATH])
{
    char *name = NULL, line[32];
    bool found = false;
    FILE *f = asprintf(&name, "%s/cgroup.procs", folder) > 0 ? fopen(name, "re") : NULL;
    while (f && !found && fgets(line, sizeof line, f))
        found = !strcmp(line, pid);
    if (f)
        fclose(f);
    free(name);
    if (found)
        fake_put_path(path, folder);
    DIR *d = found ? NULL : opendir(folder);
    for (struct dirent *e; d && !found && (e = readdir(d));)
        if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
            asprintf(&name, "%s/%s", folder, e->d_name) > 0) {
            found = fake_find_process(name, pid, path);
            free(name);
        }
    if (d)
        closedir(d);
    return found;
}

/* The cgroup of this process. */
static inline void fake_own_cgroup(char path[FAKE_PATH])
{
    const char *given = getenv("FAKE_CGROUP"), *root = fake_cgroup_root();
    char line[FAKE_PATH] = "", pid[32], folder[FAKE_PATH];
    fake_put_path(path, "/");
    snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    if (given || (getenv("FAKE_CGROUP_ROOT") && fake_find_process(root, pid, folder))) {
        fake_cgroup_of(given ? given : folder, path);
        return;
    }
    FILE *f = getenv("FAKE_CGROUP_ROOT") ? NULL : fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "0::", 3))
            fake_put_path(path, line + 3);
    }
    if (f)
        fclose(f);
}
