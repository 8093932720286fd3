/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/program.h"
#include "lib/unit.h"

/*
 * The planted faults of test/mutants, which `make mutants` builds and runs for hours: each
 * patch still applies to the sources, and docs/testing-simulation.md has a row for it.
 */

#define DOC "docs/testing-simulation.md"

enum { FILE_MAX = 1 << 20 };

static void read_file(const char *path, struct buf *text)
{
    struct err err;
    ck_assert_done(file_read(path, FILE_MAX, text, &err), err);
}

static void each_patch(void (*check)(const char *path, struct buf *doc))
{
    cleanup_buf struct buf doc = {0};
    glob_t files;
    read_file(DOC, &doc);
    ck_assert_int_eq(glob("test/mutants/*.patch", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        check(files.gl_pathv[i], &doc);
    globfree(&files);
}

static void applies(const char *path, struct buf *doc)
{
    struct program p;
    (void)doc;
    program_start(&p, ".", ARGV("patch", "--dry-run", "--force", "-p1", "--input", path));
    int status = program_wait(&p);
    ck_assert_msg(status == 0, "%s: %s", path, program_output(&p));
    program_fini(&p);
}

START_TEST(every_patch_applies)
{
    each_patch(applies);
}
END_TEST

static size_t n_rows;

static void has_a_row(const char *path, struct buf *doc)
{
    cleanup_buf struct buf text = {0};
    struct span name = span_of(strrchr(path, '/') + 1);
    name.n -= strlen(".patch");
    read_file(path, &text);
    cleanup_free char *row = xasprintf("\n| `%.*s` | %.*s | ", SPAN_ARG(name),
                                       (int)strcspn(text.p, "\n"), text.p);
    ck_assert_msg(strstr(doc->p, row) != NULL, "%s has no row %s", DOC, row);
    n_rows++;
}

START_TEST(every_patch_has_a_row_and_every_row_a_patch)
{
    cleanup_buf struct buf doc = {0};
    size_t n = 0;
    each_patch(has_a_row);
    read_file(DOC, &doc);
    const char *at = strstr(doc.p, "\n| mutant |");
    ck_assert_ptr_nonnull(at);
    at = strstr(at, "\n| `");
    for (; at && strncmp(at, "\n| `", 4) == 0; at = strchr(at + 1, '\n'))
        n++;
    ck_assert_uint_eq(n, n_rows);
}
END_TEST

UNIT_MAIN("mutants", every_patch_applies, every_patch_has_a_row_and_every_row_a_patch)
