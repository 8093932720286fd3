/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/bench.h"

/*
 * make bench: latency and throughput of the extender for several cluster sizes, compared
 * with the baseline (floor.c) of the same run. This process generates the load; the
 * extender, the API server and the baseline are processes of their own. Both sides are
 * measured in alternating turns, and each result is the median of the rounds.
 */

enum { BINDS = 150 }; /* per round: half of them with 16 connections */

struct config {
    char *nodes, *only, *build;
    char *score;
    int64_t rounds, calls;
};

/* The measurements of one server for one kind of call. */
struct side {
    struct series p50, p99, rate, rate16, cpu;
};

/* A kind of call: to the extender and to the baseline. */
struct bench {
    const char *name;
    const struct server *ours, *floor;
    const struct span *requests, *floor_requests;
    size_t n_requests;
    size_t calls, calls16; /* per round */
    bool once;             /* each request can be used only once */
    bool best;             /* by an extender with the default --filter-answer=best */
    size_t used, floor_used;
    struct side side[2];
    size_t failed;
};

static void measure(struct bench *b, bool floor, unsigned connections, size_t calls)
{
    struct side *side = &b->side[floor];
    size_t *used = floor ? &b->floor_used : &b->used;
    const struct server *server = floor ? b->floor : b->ours;
    struct load load = {
        .port = server->port,
        .connections = connections,
        .requests = floor ? b->floor_requests : b->requests,
        .n_requests = b->n_requests,
        .first = *used,
        .calls = calls,
    };
    struct load_result r;
    double cpu = server_cpu_ms(server);
    load_run(&load, &r);
    cpu = server_cpu_ms(server) - cpu;
    *used += calls;
    if (connections == 1) {
        series_note(&side->p50, series_quantile(&r.ms, 0.5));
        series_note(&side->p99, series_quantile(&r.ms, 0.99));
        series_note(&side->cpu, cpu / (double)calls);
    }
    series_note(connections == 1 ? &side->rate : &side->rate16,
                (double)calls / r.seconds);
    b->failed += r.failed;
    series_fini(&r.ms);
}

static void bench_round(struct bench *b)
{
    for (int floor = 0; floor < 2; floor++)
        measure(b, floor, 1, b->calls);
    for (int floor = 0; b->calls16 && floor < 2; floor++)
        measure(b, floor, 16, b->calls16);
}

static void warm_up(struct bench *b)
{
    struct load_result r;
    bool alone = b->calls16 == 0; /* bodies that exceed the budget for several at once */
    for (int floor = 0; !b->once && floor < 2; floor++) {
        struct load load = {
            .port = floor ? b->floor->port : b->ours->port,
            .connections = alone ? 1 : 4,
            .requests = floor ? b->floor_requests : b->requests,
            .n_requests = b->n_requests,
            .calls = alone ? 4 : 40,
        };
        load_run(&load, &r);
        b->failed += r.failed;
        series_fini(&r.ms);
    }
}

/* -- output -- */

static double median(struct series *s)
{
    return series_quantile(s, 0.5);
}

/* "OURS/FLOOR", or nothing. */
static void print_rates(struct series *ours, struct series *floor)
{
    if (ours->n)
        printf("  %6.0f/%-6.0f", median(ours), median(floor));
    else
        printf("  %13s", "");
}

static void report(struct bench *b)
{
    struct side *ours = &b->side[0], *floor = &b->side[1];
    struct series r50 = series_ratio(&ours->p50, &floor->p50);
    struct series r99 = series_ratio(&ours->p99, &floor->p99);
    printf("  %-22s %7.3f /%7.3f  %5.3f (%.3f-%.3f)  %7.3f /%7.3f  %5.3f", b->name,
           median(&ours->p50), median(&floor->p50), median(&r50),
           series_quantile(&r50, 0), series_quantile(&r50, 1), median(&ours->p99),
           median(&floor->p99), median(&r99));
    print_rates(&ours->rate, &floor->rate);
    print_rates(&ours->rate16, &floor->rate16);
    printf("  %6.3f\n", median(&ours->cpu));
    if (b->failed)
        printf("  %-22s %zu calls failed\n", "", b->failed);
    series_fini(&r50);
    series_fini(&r99);
    for (int i = 0; i < 2; i++) {
        series_fini(&b->side[i].p50);
        series_fini(&b->side[i].p99);
        series_fini(&b->side[i].rate);
        series_fini(&b->side[i].rate16);
        series_fini(&b->side[i].cpu);
    }
}

/* -- one size of cluster -- */

struct rig {
    const struct config *config;
    struct testbed testbed;
    struct server floor;
    size_t failed; /* calls of all benches */
};

/* With --filter-answer=best a filter also contains the choice of a node and a write of the
 * core, so it is measured in an extender of its own. */
static void start_extender(struct rig *rig, bool compressed, bool best)
{
    testbed_extender(&rig->testbed,
                     (const char *const[]){
                         best ? "--filter-answer=best" : "--filter-answer=all",
                         compressed ? "--api-compression=on" : "--api-compression=off",
                         "--node-score", rig->config->score, NULL});
}

/* Only a leader reserves; another replica would forward the calls. */
static void wait_leader(const struct server *extender)
{
    bool leads = false;
    server_wait(extender, "/readyz");
    for (int i = 0; i < 30000 && !leads; i++) {
        json_t *inspect;
        ask("GET", server_observe_port(extender), "/inspect", NULL, &inspect);
        leads = json_is_true(json_object_get(inspect, "leader"));
        json_decref(inspect);
        clock_sleep_ms(1);
    }
    if (!leads)
        bench_die("the extender does not lead");
}

/* The time until ready, and the memory then. */
static void measure_starts(struct rig *rig)
{
    struct series ready[2] = {0}, mib = {0};
    int64_t starts = rig->config->rounds < 5 ? rig->config->rounds : 5;
    for (int64_t i = 0; i < 2 * starts; i++) {
        bool gzip = i % 2 == 0;
        start_extender(rig, gzip, false);
        series_note(&ready[gzip], server_wait(&rig->testbed.extender, "/readyz"));
        if (!gzip)
            series_note(&mib, vitals_now(&rig->testbed.extender).mib);
    }
    printf("  ready after %.0f ms (%.0f-%.0f), with gzip %.0f ms (%.0f-%.0f); resident "
           "then %.1f MiB\n",
           median(&ready[0]), series_quantile(&ready[0], 0),
           series_quantile(&ready[0], 1), median(&ready[1]),
           series_quantile(&ready[1], 0), series_quantile(&ready[1], 1), median(&mib));
    series_fini(&ready[0]);
    series_fini(&ready[1]);
    series_fini(&mib);
}

static void run_all(struct rig *rig, const struct bodies *b)
{
    size_t calls = (size_t)rig->config->calls, rounds = (size_t)rig->config->rounds;
    const struct span *const filter = b->filter[BODIES_SCHEDULER],
                             *const shuffled = b->filter[BODIES_SHUFFLED],
                             *const prioritize = b->prioritize;
    const struct server *ours = &rig->testbed.extender, *floor = &rig->floor,
                        *sim = &rig->testbed.sim;
    size_t some = BODIES_ORDERS, full = ARRAY_LEN(b->full), calls16 = 4 * calls;
    struct bench benches[] = {
        {"filter, NodeNames", ours, floor, filter, filter, some, calls, calls16,
         .once = false},
        {"filter, shuffled", ours, floor, shuffled, shuffled, some, calls, calls16,
         .once = false},
        {"prioritize, NodeNames", ours, floor, prioritize, prioritize, some, calls,
         calls16, .once = false},
        {"filter, whole Nodes", ours, floor, b->full, b->full, full, calls / 20,
         .once = false},
        {"bind", ours, sim, b->bind, b->binding, b->n_pods, BINDS / 2, BINDS / 2,
         .once = true},
        {"filter, best node", ours, floor, filter, filter, some, calls, calls16,
         .best = true},
    };
    double mib = 0;
    printf("  %-22s %16s  %-20s %17s  %-5s  %13s  %13s  %s\n", "", "p50 ms ours/floor",
           "ratio (spread)", "p99 ours/floor", "ratio", "calls/s at 1", "calls/s at 16",
           "cpu ms");
    struct span only = span_of(rig->config->only);
    for (size_t i = 0; i < ARRAY_LEN(benches); i++) {
        if (!span_starts(span_of(benches[i].name), only))
            continue;
        if (benches[i].best) {
            mib = vitals_now(ours).mib;
            start_extender(rig, true, true);
            wait_leader(ours);
        }
        warm_up(&benches[i]);
        for (size_t round = 0; round < rounds; round++)
            bench_round(&benches[i]);
        report(&benches[i]);
        rig->failed += benches[i].failed;
    }
    double last = vitals_now(ours).mib;
    printf("  resident after all calls: %.1f MiB", mib > 0 ? mib : last);
    if (mib > 0)
        printf("; of the extender with the best node: %.1f MiB", last);
    printf("\n");
}

static void bench_size(struct rig *rig, long nodes)
{
    struct bodies bodies;
    struct testbed *w = &rig->testbed;
    cleanup_free char *what = xasprintf(
        "nodes=%ld,cards=8,pods=8,full=30,node-bytes=10240,pod-bytes=3400,uuid=1", nodes);
    cleanup_free char *bench = xasprintf("%s/bench", rig->config->build);
    printf("%ld nodes, %ld pods, --node-score %s\n", nodes, nodes * 8,
           rig->config->score);
    testbed_start(w, rig->config->build, what, false);
    cleanup_free char *log = testbed_path(w, "floor.log");
    server_start(&rig->floor, log, (const char *const[]){bench, "floor", NULL});
    measure_starts(rig);
    bodies_make(&bodies, w, (size_t)nodes,
                (size_t)rig->config->rounds * BINDS);
    run_all(rig, &bodies);
    bodies_fini(&bodies);
    server_stop(&rig->floor, SIGTERM);
    testbed_stop(w);
}

static int run(void *config)
{
    struct rig rig = {.config = config};
    struct span rest = span_of(rig.config->nodes);
    while (rest.n) {
        int64_t nodes;
        struct span word = span_cut(&rest, ',');
        if (!span_i64(word, &nodes) || nodes < 2 || nodes > 99999)
            bench_die("--nodes: \"%.*s\": expected a number from 2 to 99999",
                      SPAN_ARG(word));
        bench_size(&rig, (long)nodes);
    }
    if (rig.failed)
        bench_die("%zu calls failed: the results are invalid", rig.failed);
    return 0;
}

static const struct opt options[] = {
    BENCH_OPT("nodes", "N,...", STRING, "100,1000,5000,10000", 0, 0, nodes,
              "Cluster sizes as numbers of nodes, separated by commas."),
    BENCH_OPT("only", "NAME", STRING, NULL, 0, 0, only,
              "Run only calls whose name has this prefix; \"start\" runs none."),
    BENCH_OPT("rounds", "N", INT, "7", 1, 51, rounds,
              "Number of rounds of each measurement."),
    BENCH_OPT("calls", "N", INT, "400", 20, 100000, calls,
              "Calls per round with one connection; rounds with 16 connections make four "
              "times as many."),
    BENCH_OPT("node-score", "POLICY", STRING, "fgd", 0, 0, score,
              "Value of --node-score of the extender."),
    BENCH_BUILD,
    {0},
};
const struct bench_command bench_serve = {"serve",
                                          "measure the extender and the baseline",
                                          options, sizeof(struct config), run};
