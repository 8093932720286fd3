/* SPDX-License-Identifier: Apache-2.0 */

/* The files of libgpushare-limit.so on the host. */

#include "plugin/limit_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
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

/* All users of all containers read these files. */
static int publish(const char *dir, const char *name, struct span bytes, mode_t mode,
                   struct err *err)
{
    cleanup_free char *path = xasprintf("%s/%s", dir, name);
    if (file_write(path, bytes, err))
        return -1;
    return chmod(path, mode) ? fail(path, err) : 0;
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
    return publish(dir, "ld.so.preload", span_of(preload), 0644, err);
}

static bool is_uid(struct span uid)
{
    for (size_t i = 0; i < uid.n; i++)
        if (!strchr("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-",
                    uid.p[i]) ||
            !uid.p[i])
            return false;
    return uid.n > 0 && uid.n <= UID_MAX;
}

/* The pod's processes map the file: it is changed in place, the limit in one aligned word. */
static int write_limit(const char *path, const struct limit_card *card, struct err *err)
{
    const size_t at = offsetof(struct limit_file, limit), n = sizeof(uint64_t);
    struct limit_file before = {0}, file = {.magic = LIMIT_FILE_MAGIC,
                                            .version = LIMIT_VERSION,
                                            .limit = (uint64_t)card->mib << 20};
    snprintf(file.uuid, sizeof file.uuid, "%s", card->uuid);
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0 || fchmod(fd, 0644))
        return fail(path, err);
    bool is_new = pread(fd, &before, sizeof before, 0) != (ssize_t)sizeof before;
    before.limit = file.limit;
    is_new |= memcmp(&before, &file, sizeof file) != 0;
    if (is_new ? pwrite(fd, &file, sizeof file, 0) != (ssize_t)sizeof file
               : pwrite(fd, &file.limit, n, (off_t)at) != (ssize_t)n)
        return fail(path, err);
    return 0;
}

/* The state of a pod that has one is its own. */
static int make_state(const char *path, struct err *err)
{
    const struct limit_state head = {.magic = LIMIT_STATE_MAGIC,
                                     .version = LIMIT_VERSION};
    const size_t n = offsetof(struct limit_state, slots);
    cleanup_close int fd =
        open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return errno == EEXIST ? 0 : fail(path, err);
    if (fchmod(fd, 0666) || ftruncate(fd, sizeof head) ||
        pwrite(fd, &head, n, 0) != (ssize_t)n)
        return fail(path, err);
    return 0;
}

int limit_dir_write(const char *dir, const struct limit_plan *plan, struct err *err)
{
    static const char *const folders[] = {"", "/limit", "/state"};
    if (!is_uid(span_of(plan->uid)))
        return err_set(err, ERR_INVALID, "\"%s\" is not the UID of a pod", plan->uid);
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        cleanup_free char *path = xasprintf("%s/pods/%s%s", dir, plan->uid, folders[i]);
        if (make_folder(path, err))
            return -1;
    }
    for (size_t i = 0; i < plan->n; i++) {
        cleanup_free char *limit = xasprintf("%s/pods/%s/limit/%zu", dir, plan->uid, i);
        cleanup_free char *state = xasprintf("%s/pods/%s/state/%zu", dir, plan->uid, i);
        if (write_limit(limit, &plan->cards[i], err) || make_state(state, err))
            return -1;
    }
    return 0;
}

bool limit_dir_has(const char *dir, const char *uid)
{
    cleanup_free char *path = xasprintf("%s/pods/%s/limit", dir, uid);
    return is_uid(span_of(uid)) && access(path, F_OK) == 0;
}

static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(path);
}

static void remove_pod(const char *path)
{
    cleanup_free char *limit = xasprintf("%s/limit", path),
                      *state = xasprintf("%s/state", path);
    remove_folder(limit);
    remove_folder(state);
    if (rmdir(path))
        log_warn("limit", "cannot remove the folder of a pod that is gone; retrying",
                 LOG_S("folder", path));
}

/* The bits that the library set; cuts the file back to its size. */
static uint32_t check_state(const char *path)
{
    struct limit_state head = {0};
    const size_t n = offsetof(struct limit_state, slots);
    struct stat st;
    cleanup_close int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
        return 0;
    if (st.st_size > (off_t)sizeof head && ftruncate(fd, sizeof head))
        log_warn("limit", "cannot cut a state file back to its size",
                 LOG_S("file", path));
    if (pread(fd, &head, n, 0) != (ssize_t)n || head.magic != LIMIT_STATE_MAGIC)
        return 0;
    return head.unlimited;
}

void limit_dir_check(const char *dir, const struct limit_dir_sink *sink)
{
    cleanup_free char *pods = xasprintf("%s/pods", dir);
    DIR *d = opendir(pods);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (!is_uid(span_of(e->d_name)))
            continue;
        cleanup_free char *path = xasprintf("%s/%s", pods, e->d_name);
        uint32_t bits = 0;
        if (!sink->is_known(sink->ctx, e->d_name)) {
            remove_pod(path);
            continue;
        }
        for (size_t i = 0; i < LIMIT_CARDS; i++) {
            cleanup_free char *state = xasprintf("%s/state/%zu", path, i);
            bits |= check_state(state);
        }
        if (bits)
            sink->unlimited(sink->ctx, e->d_name, bits);
    }
    if (d)
        closedir(d);
}
