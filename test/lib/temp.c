/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/temp.h"

#include <ftw.h>
#include <sys/stat.h>

#include "base/file.h"
#include "lib/unit.h"

char *temp_dir(void)
{
    const char *base = getenv("TMPDIR");
    char *path = xasprintf("%s/gpushare-test-XXXXXX", base && *base ? base : "/tmp");
    ck_assert_msg(mkdtemp(path) != NULL, "cannot create %s", path);
    return path;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void temp_dir_remove(const char *dir)
{
    ck_assert_int_eq(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

char *temp_path(const char *dir, const char *name)
{
    return xasprintf("%s/%s", dir, name);
}

char *temp_read(const char *dir, const char *name)
{
    cleanup_free char *path = temp_path(dir, name);
    struct buf b = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 1 << 20, &b, &err), err);
    return buf_take(&b);
}

void temp_write_bytes(const char *dir, const char *name, struct span bytes)
{
    cleanup_free char *path = temp_path(dir, name);
    unlink(path); /* some file systems flush when a file is truncated */
    FILE *f = fopen(path, "w");
    ck_assert_msg(f != NULL, "cannot write %s", path);
    ck_assert_uint_eq(fwrite(bytes.p, 1, bytes.n, f), bytes.n);
    ck_assert_int_eq(fclose(f), 0);
}

void temp_write(const char *dir, const char *name, const char *text)
{
    cleanup_free char *path = temp_path(dir, name), *next = xasprintf("%s.next", path);
    cleanup_free char *next_name = xasprintf("%s.next", name);
    temp_write_bytes(dir, next_name, span_of(text));
    ck_assert_int_eq(rename(next, path), 0);
}

void temp_remove(const char *dir, const char *name)
{
    cleanup_free char *path = temp_path(dir, name);
    ck_assert_int_eq(unlink(path), 0);
}

void temp_mkdir(const char *dir, const char *name)
{
    cleanup_free char *path = temp_path(dir, name);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

void temp_script(const char *dir, const char *name, const char *text)
{
    cleanup_free char *path = temp_path(dir, name);
    cleanup_free char *script = xasprintf("#!/bin/sh\n%s", text);
    temp_write(dir, name, script);
    ck_assert_int_eq(chmod(path, 0700), 0);
}
