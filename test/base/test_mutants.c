/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>

#include "base/file.h"
#include "lib/unit.h"
#include "mutants.h"

/*
 * The list of faults in test/mutants.h: each has a place in the sources. The build with
 * SANITIZE=mutants shows the reverse, that each place names a fault of the list; `make
 * mutants` shows that each fault is found.
 */

enum { FILE_MAX = 1 << 20 };

static void add_sources(struct buf *all)
{
    glob_t files;
    ck_assert_int_eq(glob("src/*/*.c", 0, NULL, &files), 0);
    ck_assert_int_eq(glob("include/*/*.h", GLOB_APPEND, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        cleanup_buf struct buf text = {0};
        struct err err;
        ck_assert_done(file_read(files.gl_pathv[i], FILE_MAX, &text, &err), err);
        buf_add(all, text.p, text.n);
    }
    globfree(&files);
}

TEST(every_fault_has_a_place)
{
    cleanup_buf struct buf all = {0};
    size_t n = 0;
    add_sources(&all);
    buf_addc(&all, '\0');
#define HAS_A_PLACE(name, fault)                                                         \
    ck_assert_msg(strstr(all.p, "MUTANT(" #name ")"),                                    \
                  "%s: no place in src/ or include/", #name);                            \
    n++;
    MUTANT_LIST(HAS_A_PLACE)
    ck_assert_uint_ge(n, 60);
}
