/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/session.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "lib/lib.h"

enum { ARGS = 32, SAID = 4000 };

/* Each block is a file named after its line; MARK records which one runs. The driver ends
 * programs that a block leaves in the background. */
#define MARK "@@ block "
#define DRIVER                                                                           \
    "set -E\n"                                                                           \
    "trap 'echo \"failed: $BASH_COMMAND\"' ERR\n"                                        \
    "trap 'rc=$?; trap - ERR; set +e; kill $(jobs -p) 2>/dev/null; wait; exit $rc' "     \
    "EXIT\n"

/* A directory with links to everything in the checkout. */
static void fill_folder(const char *folder)
{
    cleanup_free char *root = realpath(".", NULL);
    cleanup_free char *program = program_path("gpushare-extender");
    cleanup_free char *programs =
        xmemdup0(program, (size_t)(strrchr(program, '/') - program));
    cleanup_free char *build = realpath(programs, NULL);
    DIR *dir = opendir(root);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        cleanup_free char *link = temp_path(folder, e->d_name);
        cleanup_free char *target = temp_path(root, e->d_name);
        bool is_build = strcmp(e->d_name, "build") == 0;
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            ck_assert_int_eq(symlink(is_build ? build : target, link), 0);
    }
    closedir(dir);
}

static bool is_wanted(const struct session *s, const struct doc_block *b)
{
    return b->use == s->use || (b->use == DOC_YAML && s->objects);
}

size_t session_blocks(const struct session *s, const struct doc *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        n += is_wanted(s, &d->blocks[i]);
    return n;
}

/* Writes the blocks as files into `folder`. Returns the driver script, new. */
static char *write_blocks(const struct session *s, const struct doc *d,
                          const char *folder)
{
    struct buf driver = {0};
    const char *base = strrchr(d->path, '/') ? strrchr(d->path, '/') + 1 : d->path;
    buf_adds(&driver, DRIVER);
    for (size_t i = 0; i < d->n; i++) {
        const struct doc_block *b = &d->blocks[i];
        if (!is_wanted(s, b))
            continue;
        cleanup_free char *name = xasprintf("%s:%u", base, b->line);
        temp_write(folder, name, b->text);
        buf_printf(&driver, "echo '" MARK "%u'\n%s '%s/%s'\n", b->line,
                   b->use == DOC_YAML ? s->objects : ".", folder, name);
    }
    return buf_take(&driver);
}

/* The output of the failed block. */
static void report_block(struct buf *faults, const struct doc *d, const char *how,
                         const char *said)
{
    unsigned line = 0;
    for (const char *p = said; (p = strstr(p, MARK)); said = p) {
        line = (unsigned)strtoul(p + strlen(MARK), NULL, 10);
        p = strchr(p, '\n') ? strchr(p, '\n') + 1 : p + strlen(p);
    }
    size_t n = strlen(said);
    doc_fault(faults, d, line, "%s%s%s", how, n > SAID ? "..." : "",
              said + (n > SAID ? n - SAID : 0));
}

static void wait_for_end(struct program *p, int64_t limit_ms)
{
    int64_t end = lib_now_ms() + limit_ms;
    while (program_runs(p) && lib_now_ms() < end)
        lib_pause();
}

/* env NAME=value... bash DRIVER */
static void start(struct program *p, const char *home, const char *folder,
                  const char *driver, const char *const *env)
{
    const char *argv[ARGS] = {"env", "-C",     folder, "-u",       "MAKEFLAGS",
                              "-u",  "MFLAGS", "-u",   "MAKELEVEL"};
    size_t n = 9;
    cleanup_free char *build = temp_path(folder, "build");
    cleanup_free char *path = xasprintf("PATH=%s:%s", build, getenv("PATH"));
    const char *real_home = getenv("HOME"), *real_cache = getenv("XDG_CACHE_HOME");
    cleanup_free char *cache =
        real_cache ? xasprintf("XDG_CACHE_HOME=%s", real_cache)
                   : xasprintf("XDG_CACHE_HOME=%s/.cache", real_home ? real_home : "");
    cleanup_free char *runtime = xasprintf("XDG_RUNTIME_DIR=%s", home);
    const char *const mine[] = {path,
                                cache,
                                runtime,
                                "NO_PROXY=127.0.0.1,localhost",
                                "no_proxy=127.0.0.1,localhost",
                                "LC_ALL=C.UTF-8"};
    for (size_t i = 0; i < ARRAY_LEN(mine); i++)
        argv[n++] = mine[i];
    for (; *env; env++) {
        ck_assert_uint_lt(n, ARGS - 6);
        argv[n++] = *env;
    }
    const char *const shell[] = {"bash", "-eu", "-o", "pipefail", driver};
    for (size_t i = 0; i < ARRAY_LEN(shell); i++)
        argv[n++] = shell[i];
    program_start(p, home, argv);
}

/* `scripts/cluster up` starts programs that outlive the shell. */
static void end_cluster(const char *home)
{
    struct program p;
    cleanup_free char *dir = temp_path(home, "gpushare-cluster");
    if (access(dir, F_OK) != 0)
        return;
    program_start(&p, home, ARGV("scripts/cluster", "down", "--dir", dir));
    ck_assert_msg(program_wait(&p) == 0, "%s", program_output(&p));
    program_fini(&p);
}

void session_run(const struct session *s, const struct doc *d, struct buf *faults)
{
    struct program p;
    cleanup_free char *dir = temp_dir(), *home = temp_path(dir, "home");
    cleanup_free char *blocks = temp_path(dir, "blocks");
    cleanup_free char *folder = temp_path(dir, "gpushare");
    cleanup_free char *driver = temp_path(dir, "driver");
    cleanup_free char *how = NULL;
    temp_mkdir(dir, "home");
    temp_mkdir(dir, "blocks");
    temp_mkdir(dir, "gpushare");
    cleanup_free char *text = write_blocks(s, d, blocks);
    fill_folder(folder);
    temp_write(dir, "driver", text);
    start(&p, home, folder, driver, s->env);
    wait_for_end(&p, s->limit_ms);
    if (program_runs(&p))
        how = xasprintf("still running after %d s\n", (int)(s->limit_ms / 1000));
    else if (p.status)
        how = xasprintf("exit status %d\n", p.status);
    if (how)
        report_block(faults, d, how, program_output(&p));
    program_kill(&p);
    end_cluster(home);
    temp_dir_remove(dir);
}
