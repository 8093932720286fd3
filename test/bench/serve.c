/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

/*
 * make bench: latency and throughput of the extender for several cluster sizes, compared
 * with the baseline (floor.c) of the same run. This process generates the load; the
 * extender, the API server and the baseline are processes of their own. Both sides are
 * measured in alternating turns, and each result is the median of the rounds.
 */

enum {
    BINDS = 150, /* per round: half of them with 16 connections */
    STARTS = 5,
};
enum { OURS, FLOOR, SIDES };

struct config {
    char *nodes, *only;
    int64_t rounds, calls, cards;
    bool links;
};

/* A kind of call: to the extender and to the baseline. */
struct bench {
    const char *name;
    const struct span *requests[SIDES];
    enum {
        NAMES,
        WHOLE, /* large bodies, which exceed the budget for several at once */
        BIND,  /* each request can be used only once; the baseline is the API server */
        BEST,  /* by an extender with the default --filter-answer=best */
    } kind;
};

/* One size of cluster. */
struct rig {
    const struct config *config;
    struct sim sim;
    struct extender extender;
    struct program floor;
    size_t failed; /* calls of all benches */
};

static void bench_run(struct rig *rig, const struct bench *b)
{
    struct rounds p50 = {.n = (size_t)rig->config->rounds}, p99 = p50, rate16 = p50;
    struct load side[SIDES] = {
        {.port = rig->extender.verbs.port},
        {.port = b->kind == BIND ? rig->sim.api.port
                                 : program_port(&rig->floor, "listening on ")}};
    size_t calls = (size_t)rig->config->calls, calls16 = 4 * calls;
    if (b->kind == BIND)
        calls = calls16 = BINDS / 2;
    if (b->kind == WHOLE)
        calls /= 20;
    for (int s = OURS; s < SIDES; s++) {
        side[s].requests = b->requests[s];
        side[s].n_requests = b->kind == BIND    ? p50.n * BINDS
                             : b->kind == WHOLE ? 1
                                                : BODIES_ORDERS;
        if (b->kind != BIND)
            load_run(&side[s], b->kind == WHOLE ? 1 : 4, b->kind == WHOLE ? 4 : 40);
    }
    for (size_t i = 0; i < p50.n; i++) {
        for (int s = OURS; s < SIDES; s++) {
            load_run(&side[s], 1, calls);
            p50.of[s][i] = series_quantile(&side[s].ms, 0.5);
            p99.of[s][i] = series_quantile(&side[s].ms, 0.99);
        }
        for (int s = OURS; s < SIDES && b->kind != WHOLE; s++) {
            load_run(&side[s], 16, calls16);
            rate16.of[s][i] = (double)calls16 / side[s].seconds;
        }
    }
    rounds_print(b->name, &p50);
    printf("  %8.3f", rounds_median(p99.of[OURS], p50.n));
    if (b->kind != WHOLE)
        printf("  %14.0f", rounds_median(rate16.of[OURS], p50.n));
    printf("\n");
    for (int s = OURS; s < SIDES; s++) {
        rig->failed += side[s].failed;
        free(side[s].ms.of);
    }
}

/* With --filter-answer=best a filter also contains the choice of a node and a write of the
 * core, so it is measured in an extender of its own. */
static void start_extender(struct rig *rig, bool compressed, bool best)
{
    if (rig->extender.program.pid)
        extender_stop(&rig->extender);
    extender_start(&rig->extender, &rig->sim,
                   ARGV(best ? "--filter-answer=best" : "--filter-answer=all",
                        compressed ? "--api-compression=on" : "--api-compression=off"));
}

/* The time until ready, and the memory then. */
static void measure_starts(struct rig *rig)
{
    double ready[2][STARTS], mib[STARTS];
    size_t n = rig->config->rounds < STARTS ? (size_t)rig->config->rounds : STARTS;
    for (size_t i = 0; i < 2 * n; i++) {
        double start = lib_now_exact_ms();
        start_extender(rig, i % 2 == 0, false);
        ready[i % 2][i / 2] = lib_now_exact_ms() - start;
        mib[i / 2] = vitals_now(&rig->extender.program).mib;
    }
    printf("  ready after %.0f ms, with gzip %.0f ms; resident then %.1f MiB\n",
           rounds_median(ready[1], n), rounds_median(ready[0], n), rounds_median(mib, n));
}

static void run_all(struct rig *rig, const struct bodies *b)
{
    const struct span *filter = b->filter[BODIES_SCHEDULER];
    const struct span *shuffled = b->filter[BODIES_SHUFFLED];
    const struct bench benches[] = {
        {"filter, NodeNames", {filter, filter}, NAMES},
        {"filter, shuffled", {shuffled, shuffled}, NAMES},
        {"prioritize, NodeNames", {b->prioritize, b->prioritize}, NAMES},
        {"filter, whole Nodes", {&b->full, &b->full}, WHOLE},
        {"bind", {b->bind, b->binding}, BIND},
        {"filter, best node", {filter, filter}, BEST},
    };
    printf("  %-22s %18s  %-20s %9s  %14s\n", "", "p50 ms ours/floor", "ratio (spread)",
           "p99 ms", "calls/s at 16");
    array_items(bench, benches) {
        if (!span_starts(span_of(bench->name), span_of(rig->config->only)))
            continue;
        if (bench->kind == BEST) {
            printf("  resident after all calls: %.1f MiB\n",
                   vitals_now(&rig->extender.program).mib);
            start_extender(rig, true, true);
            lib_wait(extender_leads(&rig->extender));
        }
        bench_run(rig, bench);
    }
    printf("  resident after the last call: %.1f MiB\n",
           vitals_now(&rig->extender.program).mib);
}

static void bench_size(struct rig *rig, int64_t nodes)
{
    struct bodies bodies;
    cleanup_free char *what = xasprintf(
        "nodes=%lld,cards=8,pods=8,full=30,node-bytes=10240,pod-bytes=3400,uuid=1,"
        "links=%d",
        (long long)nodes, rig->config->links);
    printf("%lld nodes, %lld pods\n", (long long)nodes, (long long)nodes * 8);
    sim_start(&rig->sim, ARGV("--generate", what));
    lib_program(&rig->floor, "bench", ARGV("floor"), ARGV(NULL));
    measure_starts(rig);
    bodies_make(&bodies, &rig->sim, &rig->extender, (size_t)nodes,
                (size_t)rig->config->rounds * BINDS, (int)rig->config->cards);
    run_all(rig, &bodies);
    arena_fini(&bodies.arena);
    program_stop(&rig->floor);
    extender_stop(&rig->extender);
    sim_stop(&rig->sim);
}

static void run(void *config)
{
    struct rig rig = {.config = config};
    struct span rest = span_of(rig.config->nodes);
    while (rest.n) {
        int64_t nodes;
        struct span word = span_cut(&rest, ',');
        ck_assert_msg(span_i64(word, &nodes) && nodes >= 2 && nodes <= 99999,
                      "--nodes: \"%.*s\": expected a number from 2 to 99999",
                      SPAN_ARG(word));
        bench_size(&rig, nodes);
    }
    ck_assert_msg(!rig.failed, "%zu calls failed: the results are invalid", rig.failed);
}

static const struct opt options[] = {
    BENCH_OPT("nodes", "N,...", STRING, "100,1000,5000,10000", 0, 0, nodes,
              "Cluster sizes as numbers of nodes, separated by commas."),
    BENCH_OPT("only", "NAME", STRING, NULL, 0, 0, only,
              "Run only calls whose name has this prefix; \"start\" runs none."),
    BENCH_OPT("rounds", "N", INT, "7", 1, BENCH_ROUNDS, rounds,
              "Number of rounds of each measurement."),
    BENCH_OPT("calls", "N", INT, "400", 20, 100000, calls,
              "Calls per round with one connection; rounds with 16 connections make four "
              "times as many."),
    BENCH_OPT("cards", "N", INT, "1", 1, 8, cards, "Number of cards of each pod."),
    BENCH_OPT("links", NULL, BOOL, "off", 0, 0, links,
              "It is known what connects the cards."),
    {0},
};
const struct bench_command bench_serve = {"serve",
                                          "measure the extender and the baseline",
                                          false,
                                          options,
                                          sizeof(struct config),
                                          run};
