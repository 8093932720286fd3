/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/promtool.h"

#include "lib/program.h"
#include "lib/temp.h"
#include "lib/unit.h"

void promtool_run(const char *arguments)
{
    struct program p;
    program_start(&p, getenv("HOME"), /* deps may have unpacked it there */
                  ARGV("sh", "-c", lib_fmt("scripts/promtool %s", arguments)));
    /* Its tests of rules take their time on a busy machine. */
    lib_wait_within(6 * LIB_WAIT_MS, !program_runs(&p), "promtool %s does not end",
                    arguments);
    free(program_end(&p, 0));
}

void promtool_check_metrics(struct span text)
{
    char *dir = temp_dir();
    temp_write_bytes(dir, "metrics", text);
    promtool_run(lib_fmt("check metrics <'%s/metrics'", dir));
    temp_dir_remove(dir);
    free(dir);
}
