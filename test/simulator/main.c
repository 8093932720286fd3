/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/opt.h"
#include "mutants.h"

/* So many seeds, of 10,000 steps each. */
#if defined(__SANITIZE_ADDRESS__)
#define SEEDS "100"
#define STEPS "1000000"
#else
#define SEEDS "400"
#define STEPS "4000000"
#endif

/*
 * simulate [--seed N] [--first N] [--seeds N] [--steps N] [--replicas N] [--verbose]
 *          [--mutant NAME]
 * Without a seed: the fixed seeds of the test suite.
 */

struct config {
    int64_t seed, first, steps, replicas, seeds;
    bool verbose;
    char *mutant;
};

#define AT(f) offsetof(struct config, f)
static const struct opt table[] = {
    {.name = "seed",
     .arg = "N",
     .type = OPT_INT,
     .offset = AT(seed),
     .help = "Run only this seed (default: 0, run --seeds seeds)."},
    {.name = "first",
     .arg = "N",
     .init = "1",
     .type = OPT_INT,
     .min = 1,
     .max = INT32_MAX,
     .offset = AT(first),
     .help = "First seed of a run of several seeds (default: 1)."},
    {.name = "seeds",
     .arg = "N",
     .init = SEEDS,
     .type = OPT_INT,
     .min = 1,
     .offset = AT(seeds),
     .help = "Number of seeds (default: " SEEDS ")."},
    {.name = "steps",
     .arg = "N",
     .init = STEPS,
     .type = OPT_INT,
     .min = 1,
     .offset = AT(steps),
     .help = "Number of events, summed over all seeds (default: " STEPS ")."},
    {.name = "replicas",
     .arg = "N",
     .type = OPT_INT,
     .max = REPLICAS,
     .offset = AT(replicas),
     .help = "Number of extender replicas; 0 (the default) varies 1 to 3 by seed."},
    {.name = "verbose",
     .type = OPT_BOOL,
     .offset = AT(verbose),
     .help = "Print every event (default: false)."},
    {.name = "mutant",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(mutant),
     .help = "Plant this fault of test/mutants.h; needs a build with SANITIZE=mutants."},
    {0},
};
static const struct opt_program program = {
    .name = "simulate",
    .summary = "the deterministic simulator",
    .version = GPUSHARE_VERSION,
    .table = table,
};

static int no_file(const char *path, opt_pair_fn pair, void *ctx, struct err *err)
{
    (void)pair;
    (void)ctx;
    return err_set(err, ERR_INVALID, "%s: option files are not supported", path);
}

static void print(const struct stats *s)
{
    printf(
        "pods %llu, deleted %llu, binds %llu (joined %llu), bound %llu, applied %llu\n"
        "calls without an answer %llu, with an error %llu, twice %llu\n"
        "crashes %llu, clean stops %llu, pauses %llu, take-overs %llu, lists %llu, "
        "compactions %llu, "
        "wakeups %llu, times at rest %llu\n"
        "edits %llu, bound with an invalid request %llu\n"
        "bound by outsiders %llu, machines frozen %llu, clocks set %llu\n"
        "forged pods %llu, edits of promises %llu, denied %llu, rejected by the device "
        "plugin %llu, entries of podLists %llu\n"
        "forwarded %llu (misdirected %llu), steps with a stale node %llu, "
        "cut off %llu\n"
        "evicted %llu, evictions refused by a budget %llu\n"
        "reservations %llu: bound %llu, taken by a higher priority %llu, expired %llu\n"
        "gangs %llu: reserved for %llu times, rejected %llu, bound %llu\n",
        (unsigned long long)s->pods, (unsigned long long)s->deleted,
        (unsigned long long)s->binds, (unsigned long long)s->joined,
        (unsigned long long)s->bound, (unsigned long long)s->applied,
        (unsigned long long)s->lost, (unsigned long long)s->refused,
        (unsigned long long)s->duplicates, (unsigned long long)s->crashes,
        (unsigned long long)s->restarts, (unsigned long long)s->pauses,
        (unsigned long long)s->takeovers, (unsigned long long)s->relists,
        (unsigned long long)s->compactions, (unsigned long long)s->wakeups,
        (unsigned long long)s->quiets, (unsigned long long)s->edits,
        (unsigned long long)s->invalid, (unsigned long long)s->foreign,
        (unsigned long long)s->freezes, (unsigned long long)s->clocks_set,
        (unsigned long long)s->forged, (unsigned long long)s->tampered,
        (unsigned long long)s->denied, (unsigned long long)s->refused_by_plugin,
        (unsigned long long)s->listed, (unsigned long long)s->forwarded,
        (unsigned long long)s->misdirected, (unsigned long long)s->stale,
        (unsigned long long)s->cut_off, (unsigned long long)s->evicted,
        (unsigned long long)s->budgets, (unsigned long long)s->reserved,
        (unsigned long long)s->reserved_bound, (unsigned long long)s->yielded,
        (unsigned long long)s->expired, (unsigned long long)s->gangs,
        (unsigned long long)s->gangs_reserved, (unsigned long long)s->gangs_rejected,
        (unsigned long long)s->gangs_bound);
}

int main(int argc, char **argv)
{
    struct config c = {0};
    struct err err = {0};
    struct stats stats = {0};
    enum opt_result r = opt_load(&program, &c, argc, argv, NULL, no_file, stdout, &err);
    if (r != OPT_RUN) {
        if (r == OPT_FAILED)
            fprintf(stderr, "simulate: %s\n", err.msg);
        return r == OPT_FAILED;
    }
    if (c.mutant && c.mutant[0] && !mutants_plant(c.mutant)) {
        fprintf(stderr, "simulate: --mutant=%s: this build has no such fault\n", c.mutant);
        return 2;
    }
    json_object_seed(1);
    int passed = 0, failed = 0;
    int64_t seeds = c.seed ? 1 : c.seeds;
    for (int64_t i = 0; i < seeds; i++) {
        uint64_t seed = (uint64_t)(c.seed ? c.seed : c.first + i);
        int replicas = c.replicas ? (int)c.replicas : (int)(seed % REPLICAS) + 1;
        bool ok =
            world_run(seed, (uint64_t)(c.steps / seeds), replicas, c.verbose, &stats);
        passed += ok;
        failed += !ok;
    }
    print(&stats);
    /* Not required of each seed. */
    if (!c.seed && c.steps >= 1000000 && !stats.must_be_stale && ++failed)
        printf("no node ever had to be stale: heartbeats are not checked\n");
    if (!c.seed && !stats.bound && ++failed)
        printf("nothing was ever bound: the simulation tests nothing\n");
    if (!c.seed && c.steps >= 1000000 && !stats.stale && ++failed)
        printf("no node was ever stale: heartbeats are not tested\n");
    if (!c.seed && c.steps >= 1000000 && (!stats.edits || !stats.invalid) && ++failed)
        printf("no pod with an invalid request was ever bound, or none was edited\n");
    if (!c.seed && c.steps >= 1000000 &&
        (!stats.forged || !stats.tampered || !stats.denied || !stats.listed) && ++failed)
        printf("no tenant forged or edited a promise, or none was denied, or no podList "
               "had an entry\n");
    if (!c.seed && c.steps >= 1000000 && !stats.cut_off && ++failed)
        printf("no replica was ever cut off: partitions are not tested\n");
    if (!c.seed && c.steps >= 1000000 && (!stats.evicted || !stats.budgets) && ++failed)
        printf("no pod was ever evicted, or no budget refused it\n");
    if (!c.seed && c.steps >= 1000000 &&
        (!stats.reserved_bound || !stats.yielded || !stats.expired) && ++failed)
        printf("no reservation was ever bound, or none was taken, or none expired\n");
    if (!c.seed && c.steps >= 1000000 && (!stats.gangs_bound || !stats.gangs_rejected) &&
        ++failed)
        printf("no gang was ever bound, or none was rejected\n");
    printf("counted: %d simulator seeds\n", passed + failed);
    printf("%d passed, %d failed\n", !failed, !!failed);
    opt_free(&program, &c);
    return failed != 0;
}
