/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The step `driver-limit`: the driver's own limit of memory for a cgroup (driver 615 and newer). It
 * makes two cgroups, one in the other, sets limits on them, and removes them. What NVIDIA does not
 * say is recorded: the line is `ok` whatever happens.
 */

#include "card-check/check.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

#define NAME "gpushare-card-check"
enum { STEP_MIB = 4, MORE_MIB = 4096, LESS_MIB = 1000 };

struct limits {
    const struct check *k;
    struct check in; /* whose programs are in the leaf */
    struct gpu *gpu;
    char *above, *leaf;
};

static void remove_cgroup(const char *path)
{
    cleanup_free char *procs = xasprintf("%s/cgroup.procs", path);
    unlink(procs); /* of a folder that stands in for a cgroup */
    rmdir(path);
}

static enum gpu_limit_answer set_limit(const struct limits *l, const char *cgroup,
                                       int mib, struct err *err)
{
    const struct gpu_memory_limit limit = {.hard = mib < 0 ? GPU_NO_LIMIT
                                                           : (uint64_t)mib << 20};
    return gpu_memory_limit_set(l->gpu, l->k->card->uuid, cgroup, &limit, err);
}

/* Sets and reads back. False: the report says what is wrong. */
static bool set_and_read(const struct limits *l, const char *cgroup, const char *name,
                         int mib)
{
    struct gpu_memory_limit is;
    struct err err = {0};
    enum gpu_limit_answer answer = set_limit(l, cgroup, mib, &err);
    if (answer != GPU_LIMIT_OK) {
        check_say(l->k, answer == GPU_LIMIT_NO_PERMISSION ? NOT_PRESENT : DIFFERS,
                  "%s: set %d MiB: %s", name, mib, err.msg);
        return false;
    }
    answer = gpu_memory_limit_get(l->gpu, l->k->card->uuid, cgroup, &is, &err);
    if (mib < 0)
        check_say(l->k, answer == GPU_LIMIT_NONE ? OK : DIFFERS, "%s: removed: %s", name,
                  err.msg);
    else if (answer != GPU_LIMIT_OK)
        check_say(l->k, DIFFERS, "%s: set %d MiB, read: %s", name, mib, err.msg);
    else
        check_say(l->k, is.hard == (uint64_t)mib << 20 && !is.soft ? OK : DIFFERS,
                  "%s: set %d MiB, read %llu bytes, soft %llu", name, mib,
                  (unsigned long long)is.hard, (unsigned long long)is.soft);
    return true;
}

static void say_no_limit(const struct limits *l, const char *what)
{
    struct gpu_memory_limit is;
    struct err err = {0};
    enum gpu_limit_answer answer =
        gpu_memory_limit_get(l->gpu, l->k->card->uuid, l->leaf, &is, &err);
    check_say(l->k, answer == GPU_LIMIT_NONE ? OK : DIFFERS, "%s: %s", what,
              answer == GPU_LIMIT_OK ? "it has a limit" : err.msg);
}

/* The MiB of the card as a program in the leaf sees it; 0: it failed. */
static int size_inside(const struct limits *l)
{
    cleanup_free char *guest = xasprintf("%s/" GUEST, l->k->programs);
    cleanup_buf struct buf out = {0};
    return check_run(&l->in, (const char *const[]){guest, "1", "size", NULL}, "", false,
                     &out) == 0
               ? atoi(out.p)
               : 0;
}

/* How much of the limit a program can get: its context counts. */
static void find_largest(const struct limits *l)
{
    int fits = 0, fails = LIMIT_MIB + STEP_MIB;
    while (fails - fits > STEP_MIB) {
        int mib = (fits + fails) / 2;
        int rc = check_allocate(&l->in, mib, false);
        if (rc == 0)
            fits = mib;
        else
            fails = mib;
    }
    check_say(l->k, fits > 0 && fits <= LIMIT_MIB ? OK : DIFFERS,
              "the largest allocation that fits: %d of %d MiB", fits, LIMIT_MIB);
}

static void say_used(const struct limits *l)
{
    struct gpu_memory_limit is;
    struct err err = {0};
    long long mib = 0;
    if (gpu_memory_limit_get(l->gpu, l->k->card->uuid, l->leaf, &is, &err) !=
        GPU_LIMIT_OK)
        check_say(l->k, DIFFERS, "used: %s", err.msg);
    else if ((mib = (long long)(is.used >> 20)) < HELD_MIB || mib > LIMIT_MIB)
        check_say(l->k, DIFFERS, "used: %lld MiB with %d allocated", mib, HELD_MIB);
    else
        check_say(l->k, OK, "used: %lld MiB with %d allocated, %lld for the context", mib,
                  HELD_MIB, mib - HELD_MIB);
}

/* Not documented: what becomes of the limit, of the program that holds more, and of the next. */
static void lower_below_use(const struct limits *l, pid_t held)
{
    struct gpu_memory_limit is;
    struct err err = {0}, why = {0};
    enum gpu_limit_answer answer = set_limit(l, l->leaf, LESS_MIB, &err);
    int more = check_allocate(&l->in, 1, false);
    enum gpu_limit_answer got =
        gpu_memory_limit_get(l->gpu, l->k->card->uuid, l->leaf, &is, &why);
    bool ended = held > 0 && waitpid(held, NULL, WNOHANG) == held;
    check_say(l->k, OK, "recorded: lowered to %d MiB with %d in use: %s", LESS_MIB,
              HELD_MIB, answer == GPU_LIMIT_OK ? "accepted" : err.msg);
    check_say(l->k, OK, "recorded: then the limit is %llu MiB%s, %llu are used",
              (unsigned long long)is.hard >> 20, got == GPU_LIMIT_OK ? "" : " (none)",
              (unsigned long long)is.used >> 20);
    check_say(l->k, OK,
              "recorded: then the program that holds it %s, and 1 MiB more is: %s",
              ended ? "has ended" : "lives", check_answer(more));
    if (!ended)
        check_end(held);
}

static void check_leaf(const struct limits *l)
{
    int size = size_inside(l);
    check_say(l->k, size == LIMIT_MIB ? OK : DIFFERS,
              "size of the card in the cgroup: %d MiB", size);
    check_say_answer(l->k, "1000 of 2048 MiB", check_allocate(&l->in, 1000, false), 0);
    check_say_answer(l->k, "2100 of 2048 MiB", check_allocate(&l->in, 2100, false),
                     OUT_OF_MEMORY);
    find_largest(l);
    pid_t held = check_hold(&l->in, HELD_MIB, false);
    check_say_answer(l->k, "1200 of 2048 MiB", held > 0 ? 0 : -1, 0);
    say_used(l);
    check_say_answer(l->k, "1200 MiB more, in another process",
                     check_allocate(&l->in, 1200, false), OUT_OF_MEMORY);
    check_say_answer(l->k, "600 MiB more, in another process",
                     check_allocate(&l->in, 600, false), 0);
    check_say_answer(l->k, "1200 MiB, in a process of a neighbor",
                     check_allocate(l->k, 1200, false), 0);
    if (set_and_read(l, l->leaf, "raised", MORE_MIB))
        check_say_answer(l->k, "1200 MiB more, in another process",
                         check_allocate(&l->in, 1200, false), 0);
    lower_below_use(l, held);
}

/* Whether the server's or the client's cgroup is charged is not documented. */
static void check_beneath_mps(const struct limits *l)
{
    if (!check_start_mps(l->k))
        return;
    check_say(l->k, OK, "recorded: beneath MPS 1000 of 2048 MiB are: %s",
              check_answer(check_allocate(&l->in, 1000, false)));
    check_say(l->k, OK, "recorded: beneath MPS 2100 of 2048 MiB are: %s",
              check_answer(check_allocate(&l->in, 2100, false)));
    check_end_mps(l->k);
}

static void check_above(const struct limits *l)
{
    if (!set_and_read(l, l->above, "parent", LIMIT_MIB))
        return;
    check_say_answer(l->k, "2100 MiB, of 2048 on the parent",
                     check_allocate(&l->in, 2100, false), OUT_OF_MEMORY);
    check_say(l->k, OK, "recorded: size of the card below the parent's limit: %d MiB",
              size_inside(l));
    set_and_read(l, l->above, "parent", -1);
}

static void check_cgroups(const struct limits *l)
{
    say_no_limit(l, "at first");
    if (!set_and_read(l, l->leaf, "limit", LIMIT_MIB))
        return;
    check_leaf(l);
    if (set_and_read(l, l->leaf, "limit", LIMIT_MIB))
        check_beneath_mps(l);
    set_and_read(l, l->leaf, "limit", -1);
    check_above(l);
    set_and_read(l, l->leaf, "limit", LIMIT_MIB);
    remove_cgroup(l->leaf);
    if (mkdir(l->leaf, 0755) == 0)
        say_no_limit(l, "a cgroup that is made again");
}

void check_driver_limit(const struct check *k)
{
    cleanup_gpu_sample struct gpu_sample sample = {0};
    cleanup_free char *above = xasprintf("%s/" NAME, k->config->cgroup_root);
    cleanup_free char *leaf = xasprintf("%s/leaf", above);
    struct limits l = {.k = k, .in = *k, .above = above, .leaf = leaf};
    struct err err = {0};
    if (!k->card) {
        check_say(k, NOT_PRESENT, "no card is healthy");
        return;
    }
    l.in.cgroup = leaf;
    l.gpu = gpu_nvml_new(k->config->library, 0);
    remove_cgroup(leaf); /* of a step that was ended */
    remove_cgroup(above);
    if (gpu_sample(l.gpu, &sample, &err))
        check_say(k, DIFFERS, "%s", err.msg);
    else if (gpu_memory_limit_probe(l.gpu, k->card->uuid, k->config->cgroup_root, &err))
        check_say(k, NOT_PRESENT, "%s", err.msg);
    else if (mkdir(above, 0755) || mkdir(leaf, 0755))
        check_say(k, NOT_PRESENT, "%s: %s", leaf, strerror(errno));
    else
        check_cgroups(&l);
    remove_cgroup(leaf);
    remove_cgroup(above);
    gpu_free(l.gpu);
}
