/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the slots of libgpushare-limit.so, and corrects what they count. */
#include "node/limit_slots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "limit/state.h"
#include "node/process.h"

/* Opens a regular file. The pod cannot make another one of it, but nothing here waits. */
static int open_file(const char *folder, const char *kind, int i, int flags)
{
    struct stat st;
    cleanup_free char *path = xasprintf("%s/%s/%d", folder, kind, i);
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

/* Reads the slot that the process owns; the state may be short, or foreign. A process that
 * cannot read its /proc writes no start time. */
static void read_slot(const char *folder, int card, int64_t pid, uint64_t started,
                      struct usage_slot *slot)
{
    struct limit_state *s = xmalloc(sizeof *s);
    const size_t head = offsetof(struct limit_state, slots);
    cleanup_close int fd = open_file(folder, "state", card, O_RDONLY);
    ssize_t bytes = fd < 0 ? 0 : pread(fd, s, sizeof *s, 0);
    size_t n = bytes < (ssize_t)head ? 0 : ((size_t)bytes - head) / sizeof s->slots[0];
    if (n && (s->magic != LIMIT_STATE_MAGIC || s->version != LIMIT_VERSION))
        n = 0;
    for (size_t i = 0; i < n && slot->used < 0; i++) {
        const struct limit_slot *own = &s->slots[i];
        if (!own->version || own->pid != pid ||
            (own->start_time != started && own->start_time))
            continue;
        slot->used = own->used < INT64_MAX ? (int64_t)own->used : INT64_MAX;
        slot->context = own->context < own->used ? (int64_t)own->context : slot->used;
    }
    free(s);
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
            .pod_uid = place->pod_uid,
            .slots = arena_alloc(a, LIMIT_CARDS * sizeof *l->slots),
        };
        for (int card = 0; card < LIMIT_CARDS; card++) {
            struct limit_file file = {0};
            cleanup_close int fd = open_file(folder, "limit", card, O_RDONLY);
            if (fd < 0)
                break;
            struct usage_slot *slot = &l->slots[l->n_slots++];
            *slot = (struct usage_slot){.used = -1};
            if (pread(fd, &file, LIMIT_FILE_MIN, 0) != (ssize_t)LIMIT_FILE_MIN ||
                file.magic != LIMIT_FILE_MAGIC)
                continue;
            struct span uuid = {file.uuid, strnlen(file.uuid, sizeof file.uuid)};
            slot->uuid = arena_copy(a, uuid);
            read_slot(folder, card, pid, place->pid.started, slot);
        }
    }
}

/* -- the correction -- */

/* MiB that NVML shows for the pod's processes beyond what their slots of card I count; -1: not
 * known. */
static int64_t uncounted_mib(const struct gpu_card *card, struct span pod_uid, size_t i,
                             const struct usage_limit *limits, size_t n)
{
    int64_t mib = 0;
    for (size_t k = 0; k < card->n_processes; k++) {
        const struct gpu_process *p = &card->processes[k];
        const struct usage_limit *l = usage_limit_of(limits, n, p->pid);
        if (!l || !span_eq(l->pod_uid, pod_uid))
            continue;
        int64_t used = i < l->n_slots && l->slots[i].used > 0 ? l->slots[i].used : 0;
        if (p->bytes < 0)
            return -1;
        mib += p->bytes > used ? ((p->bytes - used - 1) >> 20) + 1 : 0;
    }
    return mib;
}

/* `rise`: how many measurements in a row were above `extra`, 4 bits, and the least of them in
 * MiB. Between the two words the plugin writes another one. */
static int correct_file(int fd, const struct limit_file *f, int64_t mib)
{
    const off_t extra_at = offsetof(struct limit_file, extra);
    const off_t rise_at = offsetof(struct limit_file, rise);
    uint32_t n = f->rise % 16 + 1, low = f->rise >> 4, rise = 0;
    uint64_t extra = (uint64_t)mib << 20;
    if (n == 1 || mib < low)
        low = mib < UINT32_MAX >> 4 ? (uint32_t)mib : UINT32_MAX >> 4;
    if (extra > f->extra && n < LIMIT_SLOTS_RISE) {
        extra = f->extra;
        rise = low << 4 | n;
    } else if (extra > f->extra) {
        extra = (uint64_t)low << 20;
    }
    return (rise == f->rise || pwrite(fd, &rise, sizeof rise, rise_at) > 0) &&
                   (extra == f->extra || pwrite(fd, &extra, sizeof extra, extra_at) > 0)
               ? 0
               : -1;
}

int limit_slots_correct(const char *dir, const struct gpu_sample *s,
                        const struct usage_limit *limits, size_t n, struct err *err)
{
    int rc = 0;
    cleanup_free char *pods = xasprintf("%s/pods", dir);
    DIR *d = dir ? opendir(pods) : NULL;
    if (dir && !d && errno != ENOENT)
        return err_set(err, ERR_UNAVAILABLE, "%s: %m", pods);
    for (const struct dirent *e; d && (e = readdir(d));) {
        cleanup_free char *folder = xasprintf("%s/%s", pods, e->d_name);
        for (int i = 0; i < LIMIT_CARDS; i++) {
            struct limit_file f;
            cleanup_close int fd = open_file(folder, "limit", i, O_RDWR);
            if (fd < 0 && errno == ENOENT)
                break;
            bool done = fd >= 0;
            if (done &&
                (pread(fd, &f, sizeof f, 0) != sizeof f || f.magic != LIMIT_FILE_MAGIC))
                continue;
            for (size_t c = 0; c < s->n_cards && done; c++) {
                const struct gpu_card *card = &s->cards[c];
                int64_t mib =
                    uncounted_mib(card, span_of(e->d_name), (size_t)i, limits, n);
                if (card->state != GPU_MIG && card->processes_known && mib >= 0 &&
                    strncmp(card->uuid, f.uuid, sizeof f.uuid) == 0)
                    done = correct_file(fd, &f, mib) == 0;
            }
            if (!done)
                rc = err_set(err, ERR_UNAVAILABLE, "cannot correct %s/limit/%d: %m",
                             folder, i);
        }
    }
    if (d)
        closedir(d);
    return rc;
}
