/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
     .cuts = 2,
     .unsent = 1,
     .end_ms = 9 * SECOND},
    {.name = "events",
     .about = "one process; a late pod, a pod deleted, a watch that breaks",
     .late_pod = true,
     .asks = {1, 1},
     .cuts = 1,
     .gone = 1,
     .deletes = 1,
     .end_ms = 2 * SECOND},
    {.name = "restart",
     .about = "a process crashes, another starts",
     .asks = {2, 2},
     .cuts = 1,
     .crashes = 1,
     .starts = 1,
     .end_ms = 8 * SECOND},
    {.name = "lease",
     .about = "two processes; lease calls are late or lost",
     .standby = true,
     .asks = {1, 1},
     .holds = 1,
     .lease_cuts = 1,
     .end_ms = 6500},
    {.name = "deleted",
     .about = "two processes; the Lease is deleted by hand",
     .standby = true,
     .asks = {1, 1},
     .lease_cuts = 1,
     .lease_deletes = 1,
     .end_ms = 7 * SECOND},
};

struct seen {
    uint64_t print; /* 0: free */
    int32_t left_ms, depth;
};

struct level {
    void *copy;
    size_t cap;
    struct choice choice; /* the current choice from here */
};

struct walk {
    const struct scenario *scenario;
    struct world *world;
    struct seen *seen;
    size_t n_seen, seen_cap;
    uint64_t steps;
    struct level *levels;
    size_t levels_cap, deepest, depth; /* depth: the limit */
    struct choice *path;               /* to the violation */
    size_t n_path, path_cap;
    char violation[256];
};

static struct seen *slot_of(struct seen *seen, size_t cap, uint64_t print)
{
    size_t i = print & (cap - 1);
    while (seen[i].print && seen[i].print != print)
        i = (i + 1) & (cap - 1);
    return &seen[i];
}

static void grow(struct walk *k)
{
    size_t cap = k->seen_cap ? k->seen_cap * 2 : 1 << 16;
    struct seen *seen = xcalloc(cap, sizeof *seen);
    for (size_t i = 0; i < k->seen_cap; i++)
        if (k->seen[i].print)
            *slot_of(seen, cap, k->seen[i].print) = k->seen[i];
    free(k->seen);
    k->seen = seen;
    k->seen_cap = cap;
}

/* Is it new, or is more time or depth left than before? */
static bool is_new(struct walk *k, size_t depth)
{
    uint64_t print = world_print(k->world);
    int32_t left = (int32_t)(k->world->left.end_ms - k->world->now_ms);
    int32_t more = (int32_t)(k->depth - depth);
    if (k->n_seen * 2 >= k->seen_cap)
        grow(k);
    struct seen *s = slot_of(k->seen, k->seen_cap, print ? print : 1);
    if (s->print && s->left_ms >= left && s->depth >= more)
        return false;
    k->n_seen += !s->print;
    *s = (struct seen){print ? print : 1, left, more};
    return true;
}

static size_t save(struct walk *k, size_t depth)
{
    size_t had = k->levels_cap;
    MEM_GROW(k->levels, k->levels_cap, depth + 1);
    if (k->levels_cap > had)
        memset(k->levels + had, 0, (k->levels_cap - had) * sizeof *k->levels);
    struct level *level = &k->levels[depth];
    size_t n = heap_used();
    if (n > level->cap) {
        free(level->copy);
        level->copy = xmalloc(n * 2);
        level->cap = n * 2;
    }
    heap_save(level->copy);
    return n;
}

static void keep_path(struct walk *k, size_t n)
{
    MEM_GROW(k->path, k->path_cap, n);
    for (size_t i = 0; i < n; i++)
        k->path[i] = k->levels[i].choice;
    k->n_path = n;
    snprintf(k->violation, sizeof k->violation, "%s", k->world->violation);
}

/* Walks all successors. False: a violation; stores the path. */
static bool visit(struct walk *k, size_t depth)
{
    struct world *w = k->world;
    struct choice choices[WALK_CHOICES];
    if (depth > k->deepest)
        k->deepest = depth;
    if (!w->violation[0] && world_at_rest(w))
        world_compare(w);
    if (w->violation[0]) {
        keep_path(k, depth);
        return false;
    }
    if (depth >= k->depth)
        return true;
    size_t used = save(k, depth);
    int n = world_choices(w, choices);
    if (w->now_ms >= w->left.end_ms) {
        world_settle(w);
        if (w->violation[0]) {
            keep_path(k, depth);
            return false;
        }
        heap_restore(k->levels[depth].copy, used);
    }
    for (int i = 0; i < n; i++) {
        k->levels[depth].choice = choices[i];
        world_take(w, choices[i]);
        k->steps++;
        if ((w->violation[0] || is_new(k, depth + 1)) && !visit(k, depth + 1))
            return false;
        heap_restore(k->levels[depth].copy, used);
    }
    return true;
}

static void forget(struct walk *k)
{
    free(k->seen);
    k->seen = NULL;
    k->n_seen = k->seen_cap = 0;
    k->steps = k->deepest = 0;
}

/* Walks from the start, and restores the start state. */
static bool run(struct walk *k, size_t depth)
{
    forget(k);
    k->depth = depth;
    size_t used = save(k, 0);
    bool ok = visit(k, 0);
    heap_restore(k->levels[0].copy, used);
    return ok;
}

static void print_path(struct walk *k)
{
    char text[256];
    printf("%s: %s\n", k->scenario->name, k->violation);
    struct world *w = k->world;
    w->verbose = true;
    int64_t began = w->now_ms;
    for (size_t i = 0; i < k->n_path; i++) {
        world_describe(w, k->path[i], text, sizeof text);
        printf("  %3zu %6lld ms  %s\n", i + 1, (long long)(w->now_ms - began), text);
        world_take(w, k->path[i]);
    }
    if (!w->violation[0])
        printf("  then every message is delivered until rest\n");
}

enum { UNLIMITED = 100000, FIRST_DEPTH = 6, DEEPER = 2 };

static bool walk_scenario(const struct scenario *s, size_t depth, bool quick)
{
    struct walk k = {.scenario = s};
    heap_open();
    k.world = heap_zalloc(sizeof *k.world);
    world_begin(k.world, s);
    bool ok = run(&k, depth ? depth : UNLIMITED);
    if (ok) {
        printf("%-8s %9zu states, %10llu steps, %3zu deep: %s\n", s->name, k.n_seen,
               (unsigned long long)k.steps, k.deepest, s->about);
    } else {
        size_t longest = k.n_path, states = k.n_seen;
        printf("%-8s found in %zu states\n", s->name, states);
        /* Each try costs more than the previous one; stops after an expensive one. */
        for (size_t d = FIRST_DEPTH; !quick && d < longest; d += DEEPER)
            if (!run(&k, d) || k.steps > 3 * 1000 * 1000)
                break;
        print_path(&k);
    }
    fflush(stdout);
    world_free(k.world);
    forget(&k);
    for (size_t i = 0; i < k.levels_cap; i++)
        free(k.levels[i].copy);
    free(k.levels);
    free(k.path);
    heap_close();
    return ok;
}

struct config {
    char *scenario, *mutant;
    int64_t depth, end_ms;
    bool quick;
};
#define AT(f) offsetof(struct config, f)
static const struct opt table[] = {
    {.name = "scenario",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(scenario),
     .help = "Walk only this scenario (default: all scenarios)."},
    {.name = "depth",
     .arg = "N",
     .type = OPT_INT,
     .offset = AT(depth),
     .help = "Maximum number of choices in a row; 0 (the default) is unlimited."},
    {.name = "end",
     .arg = "TIME",
     .type = OPT_DURATION,
     .offset = AT(end_ms),
     .help = "Duration of the scenario; 0s (the default) keeps its own duration."},
    {.name = "quick",
     .type = OPT_BOOL,
     .offset = AT(quick),
     .help = "Do not search for a shorter path after a violation (default: false)."},
    {.name = "mutant",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(mutant),
     .help = "Plant this fault of test/mutants.h; needs a build with SANITIZE=mutants."},
    {0},
};
static const struct opt_program program = {
    .name = "walk",
    .summary = "every interleaving of a small cluster",
    .version = GPUSHARE_VERSION,
    .table = table,
};

static int no_file(const char *path, opt_pair_fn pair, void *ctx, struct err *err)
{
    (void)pair;
    (void)ctx;
    return err_set(err, ERR_INVALID, "%s: option files are not supported", path);
}

/* A sanitizer slows the walk down ten times and checks memory, not promises: the large
 * scenarios then run only on request. */
static bool wanted(const struct scenario *s, const char *asked)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    bool by_default = !s->standby && !s->late_pod;
#else
    bool by_default = true;
#endif
    return asked && asked[0] ? !strcmp(asked, s->name) : by_default;
}

int main(int argc, char **argv)
{
    struct config c = {0};
    struct err err = {0};
    enum opt_result r = opt_load(&program, &c, argc, argv, NULL, no_file, stdout, &err);
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
    for (size_t i = 0; i < ARRAY_LEN(scenarios); i++) {
        if (!wanted(&scenarios[i], c.scenario))
            continue;
        struct scenario s = scenarios[i];
        if (c.end_ms)
            s.end_ms = c.end_ms;
        bool ok = walk_scenario(&s, (size_t)c.depth, c.quick);
        passed += ok;
        failed += !ok;
    }
    printf("%d passed, %d failed\n", passed, failed);
    opt_free(&program, &c);
    return failed != 0 || passed == 0;
}
