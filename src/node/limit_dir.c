/* SPDX-License-Identifier: Apache-2.0 */

/* The files of libgpushare-limit.so on the host. */

#include "node/limit_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "limit/state.h"

enum { LIBRARY_MAX = 16 << 20, UID_MAX = 64 };

_Static_assert((int)LIMIT_DIR_CARDS == (int)LIMIT_CARDS, "cards of a pod");

static int fail(const char *path, struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "%s: %m", path);
}

static int make_folder(const char *path, struct err *err)
{
    return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : fail(path, err);
}

/* All users of all containers read these files: each has its rights before its name. */
static int publish(const char *dir, const char *name, struct span bytes, mode_t mode,
                   struct err *err)
{
    cleanup_free char *path = xasprintf("%s/%s", dir, name);
    cleanup_free char *fresh = xasprintf("%s/.%s", dir, name);
    if (file_write(fresh, bytes, err))
        return -1;
    return chmod(fresh, mode) || rename(fresh, path) ? fail(path, err) : 0;
}

/* -- SELinux -- */

static int label_file(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    static const char label[] = "system_u:object_r:container_file_t:s0";
    (void)st;
    (void)kind;
    (void)at;
    return lsetxattr(path, "security.selinux", label, sizeof label, 0);
}

static bool is_permissive(void)
{
    char text = '1';
    cleanup_close int fd = open("/sys/fs/selinux/enforce", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &text, 1) == 1 && text == '0';
}

/* Where files have labels, containers may read and execute those of one type. A file that is
 * made later has the label of its folder. */
static int label_files(const char *dir, struct err *err)
{
    char label[256];
    ssize_t n = getxattr(dir, "security.selinux", label, sizeof label - 1);
    label[n > 0 ? n : 0] = '\0';
    if (n <= 0 || strstr(label, ":container_file_t:") ||
        nftw(dir, label_file, 16, FTW_PHYS) == 0 || is_permissive())
        return 0;
    return err_set(err, ERR_FORBIDDEN,
                   "%s has the SELinux label %s, which containers may not read; set "
                   "container_file_t: %m",
                   dir, label);
}

int limit_dir_install(const char *dir, const char *library, struct err *err)
{
    static const char preload[] = LIMIT_DIR_CONTAINER "/libgpushare-limit.so\n";
    cleanup_buf struct buf bytes = {0};
    cleanup_free char *pods = xasprintf("%s/pods", dir);
    if (file_read(library, LIBRARY_MAX, &bytes, err) || make_folder(dir, err) ||
        make_folder(pods, err))
        return -1;
    if (publish(dir, "libgpushare-limit.so", buf_span(&bytes), 0755, err))
        return -1;
    return publish(dir, "ld.so.preload", span_of(preload), 0644, err) ||
                   label_files(dir, err)
               ? -1
               : 0;
}

bool limit_dir_is_uid(struct span uid)
{
    return uid.n > 0 && uid.n <= UID_MAX && span_has_only(uid, "-");
}

/* -- state -- */

enum { HEAD = offsetof(struct limit_state, slots) };

static bool is_sound(int fd, const struct stat *st, struct limit_state *head)
{
    return st->st_size >= (off_t)sizeof *head && pread(fd, head, HEAD, 0) == HEAD &&
           head->magic == LIMIT_STATE_MAGIC && head->version == LIMIT_VERSION &&
           head->high <= LIMIT_SLOTS && !(head->reasons & LIMIT_BAD_STATE);
}

/* Does a process of the pod own a slot? If not, none can take one until the file is closed. */
static bool has_owner(int fd)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = LIMIT_SLOTS};
    return fcntl(fd, F_OFD_SETLK, &all) != 0;
}

enum { CLOSED = offsetof(struct limit_file, closed) };

static bool is_closed(const char *limit)
{
    uint32_t reasons = 0;
    cleanup_close int fd = open(limit, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && pread(fd, &reasons, sizeof reasons, CLOSED) > 0 && reasons;
}

static int set_closed(const char *limit, uint32_t reasons)
{
    cleanup_close int fd = open(limit, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && pwrite(fd, &reasons, sizeof reasons, CLOSED) == sizeof reasons ? 0
                                                                                     : -1;
}

/*
 * Makes the state, or repairs one that is short, foreign or was tampered with: what its
 * processes hold is then not known. The pod gets no memory until they have ended: limit/I,
 * which the pod cannot write, says so. `*reasons`: what the library or this function found.
 */
static int make_state(const char *state, const char *limit, bool create,
                      uint32_t *reasons)
{
    struct limit_state head = {0};
    struct stat st;
    cleanup_close int fd =
        open(state, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0666);
    *reasons = 0;
    if (fd < 0)
        return create || errno != ENOENT ? -1 : 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) ||
        ((st.st_mode & 0777) != 0666 && fchmod(fd, 0666)))
        return -1;
    if (st.st_size > (off_t)sizeof head && ftruncate(fd, sizeof head))
        return -1;
    bool sound = is_sound(fd, &st, &head);
    *reasons = sound                   ? head.reasons
               : create && !st.st_size ? 0
                                       : head.reasons | LIMIT_BAD_STATE;
    if (sound && !is_closed(limit))
        return 0;
    if (!sound && *reasons && set_closed(limit, LIMIT_BAD_STATE))
        return -1;
    if (has_owner(fd))
        return 0;
    /* A state without a slot. A disk that is full shows here, not as SIGBUS in the pod. */
    const struct limit_state fresh = {.magic = LIMIT_STATE_MAGIC,
                                      .version = LIMIT_VERSION};
    if (ftruncate(fd, 0))
        return -1;
    errno = posix_fallocate(fd, 0, sizeof fresh);
    return errno || pwrite(fd, &fresh, HEAD, 0) != HEAD || set_closed(limit, 0) ? -1 : 0;
}

int limit_dir_write(const char *dir, const struct limit_plan *plan, struct err *err)
{
    static const char *const folders[] = {"", "/limit", "/state"};
    if (!limit_dir_is_uid(span_of(plan->uid)))
        return err_set(err, ERR_INVALID, "\"%s\" is not the UID of a pod", plan->uid);
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        cleanup_free char *path = xasprintf("%s/pods/%s%s", dir, plan->uid, folders[i]);
        if (make_folder(path, err))
            return -1;
    }
    for (size_t i = 0; i < plan->n; i++) {
        cleanup_free char *limit = xasprintf("%s/pods/%s/limit/%zu", dir, plan->uid, i);
        cleanup_free char *state = xasprintf("%s/pods/%s/state/%zu", dir, plan->uid, i);
        const struct limit_card *card = &plan->cards[i];
        struct limit_file before = {0}, file = {.magic = LIMIT_FILE_MAGIC,
                                                .version = LIMIT_VERSION,
                                                .limit = (uint64_t)card->mib << 20};
        uint32_t reasons;
        snprintf(file.uuid, sizeof file.uuid, "%s", card->uuid);
        cleanup_close int fd =
            open(limit, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0 || fchmod(fd, 0644))
            return fail(limit, err);
        /* The pod's processes map the file: it is changed in place, the limit in one aligned
         * word. What others wrote behind it stays. */
        bool is_new = pread(fd, &before, sizeof before, 0) < (ssize_t)LIMIT_FILE_MIN ||
                      before.magic != file.magic || before.version != file.version ||
                      memcmp(before.uuid, file.uuid, sizeof file.uuid) != 0;
        size_t at = is_new ? 0 : offsetof(struct limit_file, limit);
        size_t n = is_new ? sizeof file : sizeof file.limit;
        if (pwrite(fd, (const char *)&file + at, n, (off_t)at) != (ssize_t)n)
            return fail(limit, err);
        if (make_state(state, limit, true, &reasons))
            return fail(state, err);
    }
    return 0;
}

bool limit_dir_has(const char *dir, const char *uid)
{
    cleanup_free char *path = xasprintf("%s/pods/%s/limit", dir, uid);
    return limit_dir_is_uid(span_of(uid)) && access(path, F_OK) == 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* One for each bit of LIMIT_...; from LIMIT_UNKNOWN on, memory is not refused. */
static const char *const reasons_text[] = {
    "no open file description locks",
    "no MADV_WIPEONFORK (Linux 4.14)",
    "memory cannot be mapped",
    "a file of the limit is not one",
    "the state was changed or cut",
    "a file cannot be opened",
    "the root was changed",
    "more than 512 processes live",
    "a card that was not promised",
    ("functions of CUDA in a version that the limit does not know are used: they are not "
     "limited"),
    "the driver or NVML does not say how much memory something took: it is not limited"};
_Static_assert(LIMIT_NO_CARD == 1 << 8 && LIMIT_UNKNOWN == 1 << 9 &&
                   LIMIT_UNCOUNTED == 1 << 10,
               "the table of reasons");

void limit_dir_explain(uint32_t bits, struct buf *out)
{
    const char *refused =
        "GPU memory was refused, because the limit could not be applied: ";
    const size_t before = out->n;
    for (size_t i = 0; i < ARRAY_LEN(reasons_text); i++) {
        bool refuses = 1U << i < LIMIT_UNKNOWN;
        if (!(bits >> i & 1))
            continue;
        if (out->n > before)
            buf_adds(out, refuses ? ", " : "; ");
        else if (refuses)
            buf_adds(out, refused);
        buf_adds(out, reasons_text[i]);
    }
    if (out->n == before) /* of another release of the library */
        buf_printf(out, "GPU memory was refused for the unknown reason 0x%x", bits);
}

void limit_dir_check(const char *dir, const struct limit_dir_sink *sink)
{
    cleanup_free char *pods = xasprintf("%s/pods", dir);
    cleanup_folder DIR *d = opendir(pods);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (!limit_dir_is_uid(span_of(e->d_name)))
            continue;
        cleanup_free char *path = xasprintf("%s/%s", pods, e->d_name);
        uint32_t bits = 0;
        if (!sink->is_known(sink->ctx, e->d_name)) {
            if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT))
                log_warn("limit",
                         "cannot remove the folder of a pod that is gone; retrying",
                         LOG_S("folder", path));
            continue;
        }
        for (size_t i = 0; i < LIMIT_CARDS; i++) {
            cleanup_free char *state = xasprintf("%s/state/%zu", path, i);
            cleanup_free char *limit = xasprintf("%s/limit/%zu", path, i);
            uint32_t reasons;
            if (make_state(state, limit, false, &reasons))
                log_warn("limit", "cannot check a state file; retrying",
                         LOG_S("file", state));
            bits |= reasons;
        }
        if (bits)
            sink->failed(sink->ctx, e->d_name, bits);
    }
}
