/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the slots of libgpushare-limit.so, and corrects what they count. */
#include "node/limit_slots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
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

/* Reads the state; returns how many slots it has. It may be short, or foreign. */
static size_t read_state(const char *folder, int card, struct limit_state *s)
{
    const ssize_t head = offsetof(struct limit_state, slots);
    cleanup_close int fd = open_file(folder, "state", card, O_RDONLY);
    ssize_t bytes = fd < 0 ? 0 : pread(fd, s, sizeof *s, 0);
    return bytes < head || s->magic != LIMIT_STATE_MAGIC || s->version != LIMIT_VERSION
               ? 0
               : (size_t)(bytes - head) / sizeof s->slots[0];
}

/* The slot that the process owns. One that cannot read its /proc writes no start time. */
static struct usage_slot slot_of(const struct usage_place *place,
                                 const struct limit_state *s, size_t n)
{
    struct usage_slot slot = {.used = -1};
    for (size_t i = 0; i < n && slot.used < 0; i++) {
        const struct limit_slot *own = &s->slots[i];
        if (!own->version || own->pid != place->own_pid ||
            (own->start_time != place->pid.started && own->start_time))
            continue;
        slot.used = own->used < INT64_MAX ? (int64_t)own->used : INT64_MAX;
        slot.context = own->context < own->used ? (int64_t)own->context : slot.used;
    }
    return slot;
}

/* MiB that NVML shows for the processes beyond what their last slots, those of the card, count;
 * -1: not known. */
static int64_t uncounted_mib(const struct gpu_sample *s, struct usage_place **places,
                             size_t n, struct span uuid)
{
    int64_t mib = -1;
    ARRAY_EACH_ITEM(const struct gpu_card, card, s->cards, s->n_cards)
    {
        if (card->state == GPU_MIG || !card->processes_known ||
            !span_eq(span_of(card->uuid), uuid))
            continue;
        mib = 0;
        for (size_t i = 0; i < n * card->n_processes; i++) {
            const struct gpu_process *p = &card->processes[i / n];
            const struct usage_place *place = places[i % n];
            const struct usage_slot *slot = &place->slots[place->n_slots - 1];
            if (p->pid != place->pid.pid)
                continue;
            if (p->bytes < 0)
                return -1;
            int64_t more = p->bytes - (slot->used > 0 ? slot->used : 0);
            mib += more > 0 ? ((more - 1) >> 20) + 1 : 0;
        }
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

int limit_slots_read(const char *dir, const char *host_root, const struct gpu_sample *s,
                     struct usage_place *places, size_t n, struct arena *a,
                     struct err *err)
{
    int rc = 0;
    cleanup_free char *pods = xasprintf("%s/pods", dir);
    cleanup_folder DIR *d = dir ? opendir(pods) : NULL;
    if (dir && !d && errno != ENOENT)
        return err_set(err, ERR_UNAVAILABLE, "%s: %m", pods);
    struct limit_state *state = arena_alloc(a, sizeof *state);
    struct usage_place **mine = arena_alloc(a, (n + 1) * sizeof *mine); /* of a pod */
    for (const struct dirent *e; d && (e = readdir(d));) {
        cleanup_free char *folder = xasprintf("%s/%s", pods, e->d_name);
        cleanup_free char *limit = xasprintf("%s/limit", folder);
        size_t n_mine = 0;
        if (access(limit, F_OK))
            continue;
        ARRAY_EACH_ITEM(struct usage_place, place, places, n)
        {
            if (place->kind != USAGE_CONTAINER ||
                !span_eq(place->pod_uid, span_of(e->d_name)))
                continue;
            place->own_pid = process_pid_in_namespace(host_root, &place->pid);
            if (place->own_pid < 0)
                continue;
            place->slots = arena_alloc(a, LIMIT_CARDS * sizeof *place->slots);
            place->n_slots = 0;
            mine[n_mine++] = place;
        }
        for (int i = 0; i < LIMIT_CARDS; i++) {
            struct limit_file f = {0};
            cleanup_close int fd = open_file(folder, "limit", i, O_RDWR);
            bool failed = fd < 0;
            if (failed && errno == ENOENT)
                break;
            if (failed) {
                rc = err_set(err, ERR_UNAVAILABLE, "%s/%d: %m", limit, i);
                fd = open_file(folder, "limit", i, O_RDONLY);
            }
            ssize_t bytes = fd < 0 ? 0 : pread(fd, &f, sizeof f, 0);
            if (bytes < (ssize_t)LIMIT_FILE_MIN || f.magic != LIMIT_FILE_MAGIC)
                continue;
            struct span uuid =
                arena_copy(a, (struct span){f.uuid, strnlen(f.uuid, sizeof f.uuid)});
            size_t n_slots = read_state(folder, i, state);
            for (size_t k = 0; k < n_mine; k++) {
                struct usage_slot slot = slot_of(mine[k], state, n_slots);
                slot.uuid = uuid;
                mine[k]->slots[mine[k]->n_slots++] = slot;
            }
            int64_t mib =
                bytes == sizeof f && !failed ? uncounted_mib(s, mine, n_mine, uuid) : -1;
            if (mib >= 0 && correct_file(fd, &f, mib))
                rc = err_set(err, ERR_UNAVAILABLE, "%s/%d: %m", limit, i);
        }
    }
    return rc;
}
