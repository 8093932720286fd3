/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/opt.h"
#include "mutants.h"
#include "walk/heap.h"
#include "walk/walk.h"

/*
 * walk [--scenario NAME] [--depth N] [--mutant NAME]
 * Walks every interleaving of each scenario, depth first. A visited state is walked again
 * only if more time (or depth) is left than before; this is rare, because the passing of
 * time is the last choice.
 *
 * After a violation the walk is repeated with increasing depth limits to find a short
 * path, which is printed.
 */

#define SECOND 1000
static const struct scenario scenarios[] = {
    {.name = "answers",
     .about = "one process; connections break, Bindings are not sent",
     .asks = {2, 1},
     .n = {[DO_CUT] = 2, [DO_UNSENT] = 1},
     .end_ms = 9 * SECOND},
    {.name = "events",
     .about = "one process; a late pod, a pod deleted, a watch that breaks",
     .asks = {1, 1},
     .n = {[DO_CREATE] = 1, [DO_CUT] = 1, [DO_GONE] = 1, [DO_DELETE] = 1},
     .end_ms = 2 * SECOND},
    {.name = "links",
     .about =
         "one process; the link of two cards is lost, or one is split into instances",
     .linked = true,
     .asks = {2, 1},
     .n = {[DO_CUT] = 1, [DO_SCV] = 3},
     .end_ms = 2 * SECOND},
    {.name = "restart",
     .about = "a process crashes, another starts",
     .asks = {2, 2},
     .n = {[DO_CUT] = 1, [DO_CRASH] = 1, [DO_START] = 1},
     .end_ms = 8 * SECOND},
    {.name = "lease",
     .about = "two processes; lease calls are late or lost",
     .standby = true,
     .asks = {1, 1},
     .n = {[DO_LEASE_HOLD] = 1, [DO_LEASE_CUT] = 1},
     .end_ms = 6500},
    {.name = "deleted",
     .about = "two processes; the Lease is deleted by hand",
     .standby = true,
     .asks = {1, 1},
     .n = {[DO_LEASE_CUT] = 1, [DO_DELETE_LEASE] = 1},
     .end_ms = 7 * SECOND},
    {.name = "shorter",
     .about = "two processes, the second with a shorter lease; lease calls are lost",
     .standby = true,
     .asks = {1, 1},
     .lease_ms = {7 * SECOND, 5 * SECOND},
     .n = {[DO_LEASE_CUT] = 2},
     .end_ms = 8500},
    {.name = "longer",
     .about = "two processes, the second with a longer lease; lease calls are lost",
     .standby = true,
     .asks = {1, 1},
     .lease_ms = {5 * SECOND, 7 * SECOND},
     .n = {[DO_LEASE_CUT] = 2},
     .end_ms = 8500},
    {.name = "deleted-shorter",
     .about = "as deleted; the second process has a shorter lease",
     .standby = true,
     .asks = {1, 1},
     .lease_ms = {7 * SECOND, 5 * SECOND},
     .n = {[DO_LEASE_CUT] = 1, [DO_DELETE_LEASE] = 1},
     .end_ms = 9 * SECOND},
};

enum { UNLIMITED = 100000, FIRST_DEPTH = 6, DEEPER = 2 };

struct seen {
    uint64_t print;
    struct span key; /* the bytes of print */
    int64_t left_ms;
    size_t depth;
};

static const struct scenario *scenario;
static struct world *world;
static struct map seen;
static struct arena arena; /* of the values of `seen` */
static uint64_t steps;
static size_t deepest, limit; /* of the depth */
static struct buf copies[UNLIMITED + 1];
static struct choice path[UNLIMITED], found[UNLIMITED]; /* now; to the violation */
static size_t n_found;
static char violation[sizeof world->violation];

/* Is it new, or is more time or depth left than before? */
static bool is_new(size_t depth)
{
    uint64_t print = world_print(world);
    int64_t left_ms = world->left.end_ms - world->now_ms;
    struct seen *s = map_get(&seen, (struct span){(char *)&print, sizeof print});
    if (s && s->left_ms >= left_ms && s->depth <= depth)
        return false;
    if (!s) {
        s = arena_alloc(&arena, sizeof *s);
        s->print = print;
        s->key = (struct span){(char *)&s->print, sizeof print};
        map_set(&seen, s);
    }
    s->left_ms = left_ms;
    s->depth = depth;
    return true;
}

/* Reports whether the world is all right; else keeps the path to it. */
static bool is_right(size_t depth)
{
    if (!world->violation[0])
        return true;
    memcpy(found, path, depth * sizeof *path);
    n_found = depth;
    memcpy(violation, world->violation, sizeof violation);
    return false;
}

/* Walks all successors. False: a violation; stores the path. */
static bool visit(size_t depth)
{
    struct choice choices[WALK_CHOICES];
    if (depth > deepest)
        deepest = depth;
    if (!world->violation[0] && world_at_rest(world))
        world_compare(world);
    if (!is_right(depth))
        return false;
    if (depth >= limit)
        return true;
    heap_save(&copies[depth]);
    int n = world_choices(world, choices);
    if (world->now_ms >= world->left.end_ms) {
        world_settle(world);
        if (!is_right(depth))
            return false;
        heap_restore(&copies[depth]);
    }
    for (int i = 0; i < n; i++) {
        path[depth] = choices[i];
        world_take(world, choices[i]);
        steps++;
        if ((world->violation[0] || is_new(depth + 1)) && !visit(depth + 1))
            return false;
        heap_restore(&copies[depth]);
    }
    return true;
}

static void forget(void)
{
    map_fini(&seen);
    arena_fini(&arena);
    map_init(&seen, 1, offsetof(struct seen, key));
    steps = deepest = 0;
}

/* Walks from the start, and restores the start state. */
static bool run(size_t depth)
{
    forget();
    limit = depth;
    heap_save(&copies[0]);
    bool ok = visit(0);
    heap_restore(&copies[0]);
    return ok;
}

static void print_path(void)
{
    printf("%s: %s\n", scenario->name, violation);
    world->verbose = true;
    int64_t began = world->now_ms;
    for (size_t i = 0; i < n_found; i++) {
        printf("  %3zu %6lld ms  ", i + 1, (long long)(world->now_ms - began));
        world_describe(world, found[i]);
        world_take(world, found[i]);
    }
    if (!world->violation[0])
        printf("  then every message is delivered until rest\n");
}

static bool walk_scenario(size_t depth, bool quick)
{
    heap_open();
    heap_on(true);
    world = xcalloc(1, sizeof *world);
    heap_on(false);
    world_begin(world, scenario);
    bool ok = run(depth && depth < UNLIMITED ? depth : UNLIMITED);
    printf("%-15s ", scenario->name);
    if (ok) {
        printf("%9zu states, %10llu steps, %3zu deep: %s\n", seen.n,
               (unsigned long long)steps, deepest, scenario->about);
    } else {
        printf("found in %zu states\n", seen.n);
        /* Each try costs more than the previous one; stops after an expensive one. */
        for (size_t d = FIRST_DEPTH, longest = n_found; !quick && d < longest;
             d += DEEPER)
            if (!run(d) || steps > 3 * 1000 * 1000)
                break;
        print_path();
    }
    fflush(stdout);
    world_free(world);
    forget();
    return ok;
}

struct config {
    char *scenario, *mutant;
    int64_t depth;
    bool quick;
};
#define OPTION(n, a, t, at, text)                                                        \
    {                                                                                    \
        .name = n, .arg = a, .type = OPT_##t, .offset = offsetof(struct config, at),     \
        .help = text                                                                     \
    }
static const struct opt table[] = {
    OPTION("scenario", "NAME", STRING, scenario,
           "Walk only this scenario (default: all scenarios)."),
    OPTION("depth", "N", INT, depth,
           "Maximum number of choices in a row; 0 (the default) is unlimited."),
    OPTION("quick", NULL, BOOL, quick,
           "Do not search for a shorter path after a violation (default: false)."),
    OPTION("mutant", "NAME", STRING, mutant,
           "Plant this fault of test/mutants.h; needs a build with SANITIZE=mutants."),
    {0},
};
static const struct opt_program program = {
    .name = "walk",
    .summary = "every interleaving of a small cluster",
    .version = GPUSHARE_VERSION,
    .table = table,
};

/* A sanitizer slows the walk down ten times and checks memory, not promises: the large
 * scenarios then run only on request. */
static bool wanted(const struct scenario *s, const char *asked)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    bool by_default = !s->standby && !s->n[DO_CREATE];
#else
    bool by_default = true;
#endif
    return asked && asked[0] ? !strcmp(asked, s->name) : by_default;
}

int main(int argc, char **argv)
{
    struct config c = {0};
    struct err err = {0};
    enum opt_result r = opt_load(&program, &c, argc, argv, NULL, NULL, stdout, &err);
    if (r != OPT_RUN) {
        if (r == OPT_FAILED)
            fprintf(stderr, "walk: %s\n", err.msg);
        return r == OPT_FAILED;
    }
    if (c.mutant && c.mutant[0] && !mutants_plant(c.mutant)) {
        fprintf(stderr, "walk: --mutant=%s: this build has no such fault\n", c.mutant);
        return 2;
    }
    int passed = 0, failed = 0;
    for (scenario = scenarios; scenario < scenarios + ARRAY_LEN(scenarios); scenario++) {
        if (!wanted(scenario, c.scenario))
            continue;
        bool ok = walk_scenario((size_t)c.depth, c.quick);
        passed += ok;
        failed += !ok;
    }
    printf("%d passed, %d failed\n", passed, failed);
    opt_free(&program, &c);
    return failed != 0 || passed == 0;
}
