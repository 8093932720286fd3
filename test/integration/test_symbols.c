/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/lib.h"

/*
 * No symbol is defined in two archives. The linker silently takes the first definition
 * that it finds, so a program that links both could call the wrong function.
 */

/* Sanitizers define "__*" in every object; weak and common symbols may repeat. */
TEST(no_symbol_is_defined_twice)
{
    const char *script =
        lib_fmt("nm -A --defined-only --extern-only '%s'/lib/*.a 2>/dev/null |\n"
                "awk '$2 ~ /[TDBR]/ && $3 !~ /^__/ {\n"
                "         if ($3 in at) print $3 \" is in \" at[$3] \" and \" $1\n"
                "         at[$3] = $1; n++\n"
                "     }\n"
                "     END { exit n < 1000 }'\n",
                lib_built(""));
    ck_assert_str_eq(lib_output(0, ARGV("bash", "-o", "pipefail", "-c", script)), "");
}

LIB_MAIN(60)
