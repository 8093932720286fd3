/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "lib/sim.h"

/*
 * No symbol is defined in two archives. The linker silently takes the first definition
 * that it finds, so a program that links both could call the wrong function.
 */

struct symbol {
    char name[160], where[160];
};

static int by_name(const void *a, const void *b)
{
    const struct symbol *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->where, y->where);
}

/* Reads the output of `nm -A` for an archive: "FILE:MEMBER:VALUE TYPE NAME" per line. */
static size_t read_symbols(const char *archive, struct symbol **symbols, size_t n,
                           size_t *cap)
{
    cleanup_free char *command =
        xasprintf("nm -A --defined-only --extern-only '%s'", archive);
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    char line[1024];
    while (fgets(line, sizeof line, f)) {
        struct symbol s;
        char type;
        /* Sanitizers define "__*" in every object; weak and common symbols may repeat. */
        if (sscanf(line, "%159[^ ] %c %159s", s.where, &type, s.name) != 3 ||
            !strchr("TDBR", type) || strncmp(s.name, "__", 2) == 0)
            continue;
        MEM_GROW(*symbols, *cap, n + 1);
        (*symbols)[n++] = s;
    }
    ck_assert_msg(pclose(f) == 0, "nm cannot read %s", archive);
    return n;
}

START_TEST(no_symbol_is_defined_twice)
{
    const char *build = getenv("GPUSHARE_BUILD");
    cleanup_free char *pattern = xasprintf("%s/lib/*.a", build ? build : "build");
    cleanup_buf struct buf duplicates = {0};
    struct symbol *symbols = NULL;
    size_t n = 0, cap = 0;
    glob_t found;
    ck_assert_msg(glob(pattern, 0, NULL, &found) == 0, "there is no %s", pattern);
    for (size_t i = 0; i < found.gl_pathc; i++)
        n = read_symbols(found.gl_pathv[i], &symbols, n, &cap);
    globfree(&found);
    ck_assert_uint_gt(n, 1000);
    qsort(symbols, n, sizeof *symbols, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(symbols[i - 1].name, symbols[i].name) == 0) {
            buf_adds(&duplicates, "\n");
            buf_adds(&duplicates, symbols[i].name);
            buf_adds(&duplicates, " in ");
            buf_adds(&duplicates, symbols[i - 1].where);
            buf_adds(&duplicates, " and ");
            buf_adds(&duplicates, symbols[i].where);
        }
    free(symbols);
    ck_assert_msg(!duplicates.n, "defined twice: %s", duplicates.p);
}
END_TEST

UNIT_MAIN("symbols", no_symbol_is_defined_twice)
