/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the slots of libgpushare-limit.so. */
#include "node/limit_slots.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "limit/state.h"
#include "node/process.h"

/* The file may be of a later version, and longer. */
enum { FILE_MIN = offsetof(struct limit_file, uuid) + LIMIT_UUID_MAX };

/* Opens a regular file. The pod cannot make another one of it, but nothing here waits. */
static int open_file(const char *folder, const char *kind, int i)
{
    struct stat st;
    cleanup_free char *path = xasprintf("%s/%s/%d", folder, kind, i);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Whether the process owns a slot of the card; the state may be short, or foreign. A process
 * that cannot read its /proc writes no start time. */
static bool has_slot(const char *folder, int card, int64_t pid, uint64_t started)
{
    struct limit_state *s = xmalloc(sizeof *s);
    const size_t head = offsetof(struct limit_state, slots);
    cleanup_close int fd = open_file(folder, "state", card);
    ssize_t bytes = fd < 0 ? 0 : pread(fd, s, sizeof *s, 0);
    size_t n = bytes < (ssize_t)head ? 0 : ((size_t)bytes - head) / sizeof s->slots[0];
    bool has = false;
    if (n && (s->magic != LIMIT_STATE_MAGIC || s->version != LIMIT_VERSION))
        n = 0;
    for (size_t i = 0; i < n && !has; i++)
        has = s->slots[i].version && s->slots[i].pid == pid &&
              (s->slots[i].start_time == started || !s->slots[i].start_time);
    free(s);
    return has;
}

void limit_slots_read(const char *dir, const char *host_root,
                      const struct usage_place *places, size_t n_places, struct arena *a,
                      const struct usage_limit **limits, size_t *n)
{
    struct usage_limit *list = arena_alloc(a, (n_places + 1) * sizeof *list);
    *limits = list;
    *n = 0;
    for (size_t i = 0; i < n_places && dir; i++) {
        const struct usage_place *place = &places[i];
        cleanup_free char *folder =
            xasprintf("%s/pods/%.*s", dir, SPAN_ARG(place->pod_uid));
        cleanup_free char *limit = xasprintf("%s/limit", folder);
        if (place->kind != USAGE_CONTAINER || !place->pod_uid.n || access(limit, F_OK))
            continue;
        int64_t pid = process_pid_in_namespace(host_root, &place->pid);
        if (pid < 0)
            continue;
        struct usage_limit *l = &list[(*n)++];
        *l = (struct usage_limit){
            .pid = place->pid.pid,
            .uuids = arena_alloc(a, LIMIT_CARDS * sizeof *l->uuids),
        };
        for (int card = 0; card < LIMIT_CARDS; card++) {
            struct limit_file file = {0};
            cleanup_close int fd = open_file(folder, "limit", card);
            if (fd < 0)
                break;
            if (pread(fd, &file, FILE_MIN, 0) != FILE_MIN ||
                file.magic != LIMIT_FILE_MAGIC ||
                !has_slot(folder, card, pid, place->pid.started))
                continue;
            struct span uuid = {file.uuid, strnlen(file.uuid, sizeof file.uuid)};
            l->uuids[l->n_uuids++] = arena_copy(a, uuid);
        }
    }
}
