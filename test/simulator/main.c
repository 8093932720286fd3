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
#define STAT(name) printf("%s %llu\n", #name, (unsigned long long)s->name);
    STATS(STAT)
#undef STAT
}

/* What a long run of several seeds must have done, or it tests nothing. */
static int count_missing(const struct stats *s, bool only_long)
{
    const struct {
        bool happened, always;
        const char *what;
    } needs[] = {
        {s->bound, true, "nothing was ever bound: the simulation tests nothing"},
        {s->must_be_stale, false,
         "no node ever had to be stale: heartbeats are not checked"},
        {s->stale, false, "no node was ever stale: heartbeats are not tested"},
        {s->edits && s->invalid, false,
         "no pod with an invalid request was ever bound, or none was edited"},
        {s->forged && s->tampered && s->denied && s->listed, false,
         "no tenant forged or edited a promise, or none was denied, or no podList had an "
         "entry"},
        {s->cut_off, false, "no replica was ever cut off: partitions are not tested"},
        {s->evicted && s->budgets, false,
         "no pod was ever evicted, or no budget refused it"},
        {s->reserved_bound && s->yielded && s->expired, false,
         "no reservation was ever bound, or none was taken, or none expired"},
        {s->gangs_bound && s->gangs_rejected, false,
         "no gang was ever bound, or none was rejected"},
    };
    int missing = 0;
    for (size_t i = 0; i < ARRAY_LEN(needs); i++) {
        if (needs[i].happened || (!needs[i].always && !only_long))
            continue;
        printf("%s\n", needs[i].what);
        missing++;
    }
    return missing;
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
    if (!c.seed)
        failed += count_missing(&stats, c.steps >= 1000000);
    printf("counted: %d simulator seeds\n", passed + failed);
    printf("%d passed, %d failed\n", !failed, !!failed);
    opt_free(&program, &c);
    return failed != 0;
}
