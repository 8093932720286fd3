/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "lib/program.h"
#include "lib/temp.h"
#include "lib/unit.h"

/* shellcheck finds nothing in the scripts; .shellcheckrc gives the exceptions. */

#define LIST                                                                             \
    "find .ci scripts test -type f -exec awk 'FNR == 1 && /^#!.*sh( |$)/ || "            \
    "FNR == 2 && /^# shellcheck shell=/ { print FILENAME }' {} + | sort"

static char *run(int status, const char *command)
{
    struct program p;
    program_start(&p, ".", ARGV("bash", "-o", "pipefail", "-c", command));
    int is = program_wait(&p);
    char *said = xstrdup(program_output(&p));
    program_fini(&p);
    ck_assert_msg(is == status, "%s: exit status %d: %s", command, is, said);
    return said;
}

START_TEST(the_scripts_have_no_findings)
{
    cleanup_free char *names = run(0, LIST);
    static const char *const some[] = {".ci/run\n", "scripts/install\n",
                                       "scripts/oci.sh\n", "scripts/release/publish\n",
                                       "test/e2e-node/images\n"};
    for (size_t i = 0; i < ARRAY_LEN(some); i++)
        ck_assert_contains(names, some[i]);
    free(run(0, LIST " | xargs -P 2 -n 12 shellcheck --format gcc"));
}
END_TEST

/* A finding fails the test above. */
START_TEST(a_finding_is_reported)
{
    cleanup_free char *said =
        run(1, "printf '#!/bin/bash\\nrm $1\\n' | shellcheck --format gcc -");
    ck_assert_contains(said, "[SC2086]");
}
END_TEST

UNIT_MAIN("shell", the_scripts_have_no_findings, a_finding_is_reported)
