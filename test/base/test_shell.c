/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/program.h"
#include "lib/temp.h"
#include "lib/unit.h"

/* shellcheck finds nothing in the scripts; .shellcheckrc gives the exceptions. What
 * scripts/cluster refuses; that it runs is tested by all of test/e2e. */

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

TEST(the_scripts_have_no_findings)
{
    cleanup_free char *names = run(0, LIST);
    static const char *const some[] = {".ci/run\n", "scripts/install\n",
                                       "scripts/oci.sh\n", "scripts/release/publish\n",
                                       "test/e2e-node/images\n"};
    array_items(c, some)
        ck_assert_contains(names, *c);
    free(run(0, LIST " | xargs -P 2 -n 12 shellcheck --format gcc"));
}

/* A finding fails the test above. */
TEST(a_finding_is_reported)
{
    cleanup_free char *said =
        run(1, "printf '#!/bin/bash\\nrm $1\\n' | shellcheck --format gcc -");
    ck_assert_contains(said, "[SC2086]");
}

TEST(a_managed_cluster_takes_no_option_of_a_simulated_one)
{
    static const char *const options[] = {
        "--nodes 3", "--cards 1", "--card-mib 1024",    "--extenders 2",
        "--bare",    "--empty",   "--address 127.0.0.1"};
    array_items(option, options) {
        /* No folder can be made there, so an accepted option starts nothing, either. */
        cleanup_free char *command =
            xasprintf("scripts/cluster up --dir /dev/null %s --managed", *option);
        cleanup_free char *said = run(1, command);
        cleanup_free char *error = xasprintf("cluster: --managed does not take %.*s;",
                                             (int)strcspn(*option, " "), *option);
        ck_assert_contains(said, error);
    }
}
