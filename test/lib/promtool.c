/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/promtool.h"

#include "base/mem.h"
#include "lib/temp.h"
#include "lib/unit.h"

static void run(const char *command)
{
    cleanup_buf struct buf said = {0};
    char piece[4096];
    size_t n;
    FILE *p = popen(command, "r");
    ck_assert_ptr_nonnull(p);
    while ((n = fread(piece, 1, sizeof piece, p)) > 0)
        buf_add(&said, piece, n);
    int status = pclose(p);
    ck_assert_msg(status == 0, "%s: %s", command, said.n ? said.p : "");
}

void promtool_check_metrics(struct span text)
{
    cleanup_free char *dir = temp_dir();
    temp_write_bytes(dir, "metrics", text);
    cleanup_free char *command =
        xasprintf("scripts/promtool check metrics <'%s/metrics' 2>&1", dir);
    run(command);
    temp_dir_remove(dir);
}

void promtool_rules(const char *what, const char *file)
{
    cleanup_free char *command = xasprintf("scripts/promtool %s %s 2>&1", what, file);
    run(command);
}
