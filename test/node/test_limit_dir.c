/* SPDX-License-Identifier: Apache-2.0 */
#include "node/limit_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "lib/temp.h"
#include "lib/unit.h"
#include "limit/state.h"

/* The files of a pod whose processes write anything into their state. */

static char *dir, *limit, *state;
static uint32_t bits;
static const struct limit_plan plan = {
    .uid = "u", .cards = {{.uuid = "GPU-0", .mib = 64}}, .n = 1};

static void begin(void)
{
    struct err err;
    dir = temp_dir();
    temp_mkdir(dir, "pods");
    limit = temp_path(dir, "pods/u/limit/0");
    state = temp_path(dir, "pods/u/state/0");
    ck_assert_done(limit_dir_write(dir, &plan, &err), err);
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
    free(limit);
    free(state);
}

static bool is_known(void *ctx, const char *uid)
{
    (void)ctx;
    (void)uid;
    return true;
}

static void failed(void *ctx, const char *uid, uint32_t reasons)
{
    (void)ctx;
    (void)uid;
    bits |= reasons;
}

static uint32_t check(void)
{
    const struct limit_dir_sink sink = {is_known, failed, NULL};
    bits = 0;
    limit_dir_check(dir, &sink);
    return bits;
}

static void read_at(const char *path, void *into, size_t n)
{
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(pread(fd, into, n, 0), (ssize_t)n);
}

static uint32_t closed(void)
{
    struct limit_file f;
    read_at(limit, &f, sizeof f);
    ck_assert_uint_eq(f.limit, 64u << 20);
    ck_assert_str_eq(f.uuid, "GPU-0");
    return f.closed;
}

static void check_state(void)
{
    struct limit_state *s = xcalloc(1, sizeof *s);
    struct stat st;
    read_at(state, s, sizeof *s);
    ck_assert_uint_eq(s->magic, LIMIT_STATE_MAGIC);
    ck_assert_uint_eq(s->version, LIMIT_VERSION);
    ck_assert_uint_eq(s->high, 0);
    ck_assert_uint_eq(s->reasons, 0);
    ck_assert_int_eq(stat(state, &st), 0);
    ck_assert_int_eq(st.st_size, (off_t)sizeof *s);
    ck_assert_uint_eq(st.st_mode & 0777, 0666);
    /* No page is left for the disk to lack when a process of the pod writes it. */
    ck_assert_int_ge(st.st_blocks * 512, (off_t)sizeof *s);
    free(s);
}

static void write_word(size_t at, uint32_t word)
{
    cleanup_close int fd = open(state, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, &word, sizeof word, (off_t)at), (ssize_t)sizeof word);
}

/* 0: the file is cut to nothing; 1 to 4: a field is foreign. */
static void spoil(int way)
{
    const size_t fields[] = {
        offsetof(struct limit_state, magic), offsetof(struct limit_state, version),
        offsetof(struct limit_state, high), offsetof(struct limit_state, reasons)};
    if (way == 0)
        ck_assert_int_eq(truncate(state, 0), 0);
    else
        write_word(fields[way - 1], way == 4 ? LIMIT_BAD_STATE : 1u << 20);
}

TEST(a_new_state_has_all_its_pages)
{
    check_state();
    ck_assert_uint_eq(closed(), 0);
    ck_assert_uint_eq(check(), 0);
    ck_assert_int_eq(truncate(state, 1 << 20), 0);
    ck_assert_uint_eq(check(), 0);
    check_state();
}

TEST(a_spoiled_state_is_replaced_when_no_process_owns_a_slot)
{
    for (int way = 0; way < 5; way++) {
        spoil(way);
        ck_assert(check() & LIMIT_BAD_STATE);
        check_state();
        ck_assert_uint_eq(closed(), 0);
        ck_assert_uint_eq(check(), 0);
    }
}

/* What the owner holds is not known any more. */
TEST(a_spoiled_state_closes_the_pod_while_a_process_lives)
{
    struct flock slot = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
    struct err err;
    for (int way = 0; way < 5; way++) {
        int fd = open(state, O_RDWR | O_CLOEXEC);
        ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &slot), 0);
        spoil(way);
        ck_assert(check() & LIMIT_BAD_STATE);
        ck_assert_uint_eq(closed(), LIMIT_BAD_STATE);
        ck_assert_done(limit_dir_write(dir, &plan, &err),
                       err); /* a change of the limit */
        ck_assert_uint_eq(closed(), LIMIT_BAD_STATE);
        close(fd);
        ck_assert(check() & LIMIT_BAD_STATE);
        check_state();
        ck_assert_uint_eq(closed(), 0);
    }
}

/* A plugin that ended in the middle of the repair, or a pod that repaired the head itself. */
TEST(a_sound_state_of_a_closed_pod_is_opened_when_no_process_owns_a_slot)
{
    struct flock slot = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    const uint32_t reasons = LIMIT_BAD_STATE;
    int fd = open(limit, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(
        pwrite(fd, &reasons, sizeof reasons, offsetof(struct limit_file, closed)),
        sizeof reasons);
    close(fd);
    fd = open(state, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &slot), 0);
    check();
    ck_assert_uint_eq(closed(), LIMIT_BAD_STATE);
    close(fd);
    check();
    ck_assert_uint_eq(closed(), 0);
    check_state();
}

TEST(what_the_library_reports_is_told_and_stays)
{
    write_word(offsetof(struct limit_state, reasons), LIMIT_NO_LOCKS | LIMIT_UNKNOWN);
    cleanup_buf struct buf why = {0};
    limit_dir_explain(check(), &why);
    ck_assert_str_eq(why.p,
                     "GPU memory was refused, because the limit could not be applied: no "
                     "open file description locks; functions of CUDA in a version that "
                     "the limit does not know are used: they are not limited");
    ck_assert_uint_eq(check(), LIMIT_NO_LOCKS | LIMIT_UNKNOWN);
    ck_assert_uint_eq(closed(), 0);
}

/* The file of a plugin that knew fewer fields, and what scv-agent wrote into it. */
TEST(a_change_of_the_limit_changes_nothing_else)
{
    const struct limit_plan more = {
        .uid = "u", .cards = {{.uuid = "GPU-0", .mib = 65}}, .n = 1};
    struct limit_file f;
    struct err err;
    read_at(limit, &f, sizeof f);
    f.context = 3, f.extra = 5;
    temp_write_bytes(dir, "pods/u/limit/0", (struct span){(const char *)&f, sizeof f});
    ck_assert_done(limit_dir_write(dir, &more, &err), err);
    read_at(limit, &f, sizeof f);
    ck_assert_uint_eq(f.limit, 65u << 20);
    ck_assert_uint_eq(f.context, 3);
    ck_assert_uint_eq(f.extra, 5);
    ck_assert_int_eq(truncate(limit, LIMIT_FILE_MIN), 0);
    ck_assert_done(limit_dir_write(dir, &plan, &err), err);
    read_at(limit, &f, LIMIT_FILE_MIN);
    ck_assert_uint_eq(f.limit, 64u << 20);
    ck_assert_uint_eq(f.context, 3);
}

TEST(the_library_has_its_mode_before_its_name)
{
    struct err err;
    struct stat st;
    temp_write(dir, "library", "bytes");
    cleanup_free char *from = temp_path(dir, "library");
    cleanup_free char *to = temp_path(dir, "libgpushare-limit.so");
    ck_assert_done(limit_dir_install(dir, from, &err), err);
    ck_assert_int_eq(stat(to, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0755);
}

static char *label_of(const char *path)
{
    char text[128];
    ssize_t n = getxattr(path, "security.selinux", text, sizeof text);
    return n > 0 ? xmemdup0(text, (size_t)n) : xstrdup("none");
}

TEST(where_files_have_labels_containers_may_read_these)
{
    static const char usual[] = "system_u:object_r:var_lib_t:s0";
    struct err err;
    temp_write(dir, "library", "bytes");
    cleanup_free char *from = temp_path(dir, "library");
    ck_assert_done(limit_dir_install(dir, from, &err), err);
    cleanup_free char *none = label_of(state);
    ck_assert_lacks(none, "container_file_t");
    if (setxattr(dir, "security.selinux", usual, sizeof usual, 0)) {
        puts("measured: skipped: no right to set a label");
        return;
    }
    ck_assert_done(limit_dir_install(dir, from, &err), err);
    const char *const paths[] = {dir, limit, state};
    array_items(path, paths) {
        cleanup_free char *label = label_of(*path);
        ck_assert_str_eq(label, "system_u:object_r:container_file_t:s0");
    }
}

UNIT_MAIN_AROUND(begin, end)
