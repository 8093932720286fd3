/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lib/temp.h"
#include "lib/unit.h"

TEST(a_file_is_appended_whole)
{
    cleanup_free char *dir = temp_dir(), *path = temp_path(dir, "f");
    cleanup_buf struct buf out = {0}, big = {0};
    struct err err = {0};
    temp_write(dir, "f", "content");
    buf_adds(&out, "old ");
    ck_assert_done(file_read(path, 7, &out, &err), err);
    ck_assert_str_eq(out.p, "old content");
    temp_write(dir, "f", "");
    ck_assert_done(file_read(path, 0, &out, &err), err);
    ck_assert_str_eq(out.p, "old content");
    for (int i = 0; i < 100000; i++)
        buf_addc(&big, (char)i);
    temp_write_bytes(dir, "f", buf_span(&big));
    buf_clear(&out);
    ck_assert_done(file_read(path, 100000, &out, &err), err);
    ck_assert(span_eq(buf_span(&out), buf_span(&big)));
    temp_dir_remove(dir);
}

TEST(an_error_names_the_file_and_leaves_no_temporary_file)
{
    cleanup_free char *dir = temp_dir(), *path = temp_path(dir, "f");
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    buf_adds(&out, "old");
    ck_assert_int_eq(file_read(path, 10, &out, &err), -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    cleanup_free char *want = xasprintf("%s: No such file or directory", path);
    ck_assert_str_eq(err.msg, want);
    ck_assert_int_eq(file_read(dir, 10, &out, &err), -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    temp_write(dir, "f", "12345678901");
    ck_assert_int_eq(file_read(path, 10, &out, &err), -1);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
    ck_assert_int_eq(file_read("/dev/zero", 100000, &out, &err), -1);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
    ck_assert_str_eq(out.p, "old");
    if (geteuid() != 0) { /* root can read every file */
        chmod(path, 0);
        ck_assert_int_eq(file_read(path, 100, &out, &err), -1);
        ck_assert_int_eq(err.code, ERR_FORBIDDEN);
    }
    temp_dir_remove(dir);
}

static size_t count_files(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

TEST(a_file_is_replaced_atomically)
{
    cleanup_free char *dir = temp_dir(), *path = temp_path(dir, "f");
    cleanup_free char *none = temp_path(dir, "no/f");
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    struct stat st;
    ck_assert_done(file_write(path, SPAN("first"), &err), err);
    ck_assert_done(file_write(path, SPAN("second"), &err), err);
    ck_assert_done(file_read(path, 100, &out, &err), err);
    ck_assert_str_eq(out.p, "second");
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(file_write(none, SPAN("x"), &err), -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    ck_assert_contains(err.msg, "no/f: ");
    /* It cannot replace a directory, and leaves no temporary file. */
    ck_assert_int_eq(file_write(dir, SPAN("x"), &err), -1);
    ck_assert_uint_eq(count_files(dir), 1);
    temp_dir_remove(dir);
}

enum { WRITES = 200, BYTES = 100000 };

static void write_often(const char *path, char c)
{
    cleanup_buf struct buf text = {0}, is = {0};
    struct err err = {0};
    for (int i = 0; i < BYTES; i++)
        buf_addc(&text, c);
    for (int i = 0; i < WRITES; i++) {
        ck_assert_done(file_write(path, buf_span(&text), &err), err);
        buf_clear(&is);
        ck_assert_done(file_read(path, BYTES, &is, &err), err);
        ck_assert_uint_eq(is.n, BYTES);
        ck_assert_int_eq(memcmp(is.p, is.p + 1, BYTES - 1), 0);
    }
}

TEST(two_writers_do_not_mix)
{
    cleanup_free char *dir = temp_dir(), *path = temp_path(dir, "f");
    int status;
    pid_t other = fork();
    ck_assert_int_ge(other, 0);
    if (!other) {
        write_often(path, 'b');
        _exit(0);
    }
    write_often(path, 'a');
    ck_assert_int_eq(waitpid(other, &status, 0), other);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(count_files(dir), 1);
    temp_dir_remove(dir);
}
