/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/opt.h"
#include "bench/ask.h"
#include "bench/bodies.h"
#include "bench/count.h"
#include "bench/load.h"
#include "bench/result.h"
#include "bench/server.h"

/*
 * make bench: latency and throughput of the extender for several cluster sizes, compared
 * with the baseline (floor.c) of the same run. This process generates the load; the
 * extender, the API server and the baseline are processes of their own. Both sides are
 * measured in alternating turns, and each result is the median of the rounds.
 */

enum { BINDS = 150 }; /* per round: half of them with 16 connections */

struct config {
    char *nodes, *only, *build, *out;
    const char *score;
    int64_t rounds, calls;
};

static int parse_score(struct span text, void *field, struct err *err)
{
    static const char *const names[] = {"binpack", "spread", "scv", "fgd"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!span_eq(text, span_of(names[i])))
            continue;
        *(const char **)field = names[i];
        return 0;
    }
    return err_set(err, ERR_INVALID, "\"%.*s\": expected binpack, spread, scv or fgd",
                   SPAN_ARG(text));
}

#define AT(field) offsetof(struct config, field)
static const struct opt options[] = {
    {.name = "nodes",
     .arg = "N,...",
     .init = "100,1000,5000,10000",
     .type = OPT_STRING,
     .offset = AT(nodes),
     .help = "Cluster sizes as numbers of nodes, separated by commas."},
    {.name = "only",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(only),
     .help = "Run only calls whose name has this prefix; \"start\" runs none."},
    {.name = "rounds",
     .arg = "N",
     .init = "7",
     .type = OPT_INT,
     .min = 1,
     .max = RESULT_ROUNDS,
     .offset = AT(rounds),
     .help = "Number of rounds of each measurement."},
    {.name = "calls",
     .arg = "N",
     .init = "400",
     .type = OPT_INT,
     .min = 20,
     .max = 100000,
     .offset = AT(calls),
     .help = "Calls per round with one connection; rounds with 16 connections make four "
             "times as many."},
    {.name = "node-score",
     .arg = "binpack|spread|scv|fgd",
     .init = "fgd",
     .type = OPT_CUSTOM,
     .parse = parse_score,
     .offset = AT(score),
     .help = "Value of --node-score of the extender."},
    {.name = "build",
     .arg = "DIR",
     .init = "build",
     .type = OPT_STRING,
     .offset = AT(build),
     .help = "Folder of the built programs."},
    {.name = "out",
     .arg = "FILE",
     .init = "build/bench.json",
     .type = OPT_STRING,
     .offset = AT(out),
     .help = "File for the results as JSON."},
    {0},
};

static const struct opt_program program = {
    .name = "bench",
    .summary = "measure the extender and the baseline",
    .version = GPUSHARE_VERSION,
    .table = options,
};

/* The measurements of one server for one kind of call. */
struct side {
    struct result p50, p99, rate, rate16, cpu;
};

/* A kind of call: to the extender and to the baseline. */
struct bench {
    const char *name, *floor_name;
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
        result_note(&side->p50, load_quantile(&r, 0.5));
        result_note(&side->p99, load_quantile(&r, 0.99));
        result_note(&side->cpu, cpu / (double)calls);
    }
    result_note(connections == 1 ? &side->rate : &side->rate16,
                (double)calls / r.seconds);
    b->failed += r.failed;
    load_result_fini(&r);
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
        load_result_fini(&r);
    }
}

/* -- output -- */

static void json_side(struct buf *out, const char *name, const struct side *side)
{
    buf_printf(out, "\"%s\":{", name);
    result_json(out, "p50_ms", result_spread(&side->p50));
    result_json(out, "p99_ms", result_spread(&side->p99));
    result_json(out, "calls_per_s", result_spread(&side->rate));
    if (side->rate16.n)
        result_json(out, "calls_per_s_at_16", result_spread(&side->rate16));
    result_json(out, "cpu_ms_per_call", result_spread(&side->cpu));
    out->n--;
    buf_adds(out, "},");
}

static void print_rates(char out[32], const struct result *ours,
                        const struct result *floor)
{
    if (ours->n)
        snprintf(out, 32, "%6.0f/%-6.0f", result_spread(ours).median,
                 result_spread(floor).median);
    else
        snprintf(out, 32, "%13s", "");
}

static void report(const struct bench *b, struct buf *json)
{
    const struct side *ours = &b->side[0], *floor = &b->side[1];
    struct spread p50 = result_spread(&ours->p50), p99 = result_spread(&ours->p99);
    struct spread f50 = result_spread(&floor->p50), f99 = result_spread(&floor->p99);
    struct spread r50 = result_ratio(&ours->p50, &floor->p50);
    struct spread r99 = result_ratio(&ours->p99, &floor->p99);
    char rates[2][32];
    print_rates(rates[0], &ours->rate, &floor->rate);
    print_rates(rates[1], &ours->rate16, &floor->rate16);
    printf(
        "  %-22s %7.3f /%7.3f  %5.3f (%.3f-%.3f)  %7.3f /%7.3f  %5.3f  %s  %s  %6.3f\n",
        b->name, p50.median, f50.median, r50.median, r50.min, r50.max, p99.median,
        f99.median, r99.median, rates[0], rates[1], result_spread(&ours->cpu).median);
    if (b->failed)
        printf("  %-22s %zu calls failed\n", "", b->failed);
    buf_printf(json, "{\"name\":\"%s\",\"floor\":\"%s\",\"failed\":%zu,", b->name,
               b->floor_name, b->failed);
    json_side(json, "extender", ours);
    json_side(json, "floor_figures", floor);
    result_json(json, "p50_ratio", r50);
    result_json(json, "p99_ratio", r99);
    json->n--;
    buf_adds(json, "},");
}

/* -- one size of cluster -- */

struct rig {
    const struct config *config;
    char *dir, *kubeconfig, *lease;
    struct server sim, extender, floor;
    size_t failed; /* calls of all benches */
};

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) {
        fprintf(stderr, "bench: cannot write %s\n", path);
        exit(1);
    }
}

static void write_kubeconfig(const struct rig *rig)
{
    cleanup_free char *text =
        xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: sim\n"
                  "clusters: [{name: sim, cluster: {server: \"http://127.0.0.1:%u\"}}]\n"
                  "users: [{name: sim, user: {}}]\n"
                  "contexts: [{name: sim, context: {cluster: sim, user: sim}}]\n",
                  rig->sim.port);
    write_file(rig->kubeconfig, text);
}

static void start_sim(struct rig *rig, long nodes)
{
    cleanup_free char *exe = xasprintf("%s/kube-sim", rig->config->build);
    cleanup_free char *log = xasprintf("%s/kube-sim.log", rig->dir);
    cleanup_free char *what = xasprintf(
        "nodes=%ld,cards=8,pods=8,full=30,node-bytes=10240,pod-bytes=3400,uuid=1", nodes);
    write_file(rig->lease,
               "apiVersion: coordination.k8s.io/v1\nkind: Lease\n"
               "metadata: {name: gpushare-extender, namespace: kube-system}\nspec: {}\n");
    server_start(&rig->sim, log,
                 (const char *const[]){exe, "--port", "0", "--generate", what, "--load",
                                       rig->lease, NULL});
    write_kubeconfig(rig);
}

/* With --filter-answer=best a filter also contains the choice of a node and a write of the
 * core, so it is measured in an extender of its own. */
static void start_extender(struct rig *rig, const char *compression, bool best)
{
    cleanup_free char *exe = xasprintf("%s/gpushare-extender", rig->config->build);
    cleanup_free char *log = xasprintf("%s/extender.log", rig->dir);
    cleanup_free char *option = xasprintf("--api-compression=%s", compression);
    server_start(
        &rig->extender, log,
        (const char *const[]){exe, "--kubeconfig", rig->kubeconfig, "--listen",
                              "127.0.0.1", "--port", "0", "--observe-port", "0",
                              best ? "--filter-answer=best" : "--filter-answer=all",
                              option, "--node-score", rig->config->score, NULL});
}

/* Only a leader reserves; another replica would forward the calls. */
static void wait_leader(const struct server *extender)
{
    struct ask *ask = ask_new();
    bool leads = false;
    server_wait(extender, "/readyz");
    for (int i = 0; i < 30000 && !leads; i++) {
        json_t *inspect;
        ask_call(ask, "GET", server_observe_port(extender), "/inspect", NULL, &inspect);
        leads = json_is_true(json_object_get(inspect, "leader"));
        json_decref(inspect);
        usleep(1000);
    }
    ask_free(ask);
    if (leads)
        return;
    fprintf(stderr, "bench: the extender does not lead\n");
    exit(1);
}

static void start_floor(struct rig *rig)
{
    cleanup_free char *exe = xasprintf("%s/bench-floor", rig->config->build);
    cleanup_free char *log = xasprintf("%s/floor.log", rig->dir);
    server_start(&rig->floor, log, (const char *const[]){exe, NULL});
}

/* One start: the time until ready, and the memory then. */
static void measure_start(struct rig *rig, const char *compression, struct result *ready,
                          struct result *mib)
{
    if (rig->extender.pid)
        server_stop(&rig->extender);
    start_extender(rig, compression, false);
    result_note(ready, server_wait(&rig->extender, "/readyz"));
    result_note(mib, server_mib(&rig->extender));
}

static void measure_starts(struct rig *rig, struct buf *json)
{
    struct result ready[2] = {0}, mib[2] = {0};
    int64_t starts = rig->config->rounds < 5 ? rig->config->rounds : 5;
    for (int64_t i = 0; i < starts; i++) {
        measure_start(rig, "on", &ready[1], &mib[1]);
        measure_start(rig, "off", &ready[0], &mib[0]);
    }
    struct spread off = result_spread(&ready[0]), on = result_spread(&ready[1]);
    struct spread m = result_spread(&mib[0]);
    printf("  ready after %.0f ms (%.0f-%.0f), with gzip %.0f ms (%.0f-%.0f); resident "
           "then %.1f MiB\n",
           off.median, off.min, off.max, on.median, on.min, on.max, m.median);
    result_json(json, "ready_ms", off);
    result_json(json, "ready_gzip_ms", on);
    result_json(json, "resident_at_start_mib", m);
}

/* Counts allocations of a separate extender, while nothing is timed. */
static void count_all(struct rig *rig, const struct bench *benches, size_t n,
                      struct buf *json)
{
    cleanup_free char *library = xasprintf("%s/bench-count.so", rig->config->build);
    cleanup_free char *path = xasprintf("%s/counts", rig->dir);
    struct counts *counts = counts_open(path);
    server_stop(&rig->extender);
    setenv("LD_PRELOAD", library, 1);
    setenv(COUNTS_FILE, path, 1);
    start_extender(rig, "off", false);
    unsetenv("LD_PRELOAD");
    server_wait(&rig->extender, "/readyz");
    buf_adds(json, ",\"allocations_per_call\":[");
    for (size_t i = 0; i < n; i++) {
        const struct bench *b = &benches[i];
        if (b->best || !span_starts(span_of(b->name), span_of(rig->config->only)))
            continue;
        struct load load = {b->ours->port, 1, b->requests, b->n_requests, b->used, 0};
        struct allocations a = counts_measure(counts, &load);
        printf("  %-22s allocations of a call: %.2f by the program, %.2f by libraries\n",
               b->name, a.program, a.libraries);
        buf_printf(json, "{\"name\":\"%s\",\"program\":%.3f,\"libraries\":%.3f},",
                   b->name, a.program, a.libraries);
    }
    json->n -= json->p[json->n - 1] == ',';
    buf_adds(json, "]");
    counts_close(counts);
    unlink(path);
}

static void run_all(struct rig *rig, const struct bodies *b, struct buf *json)
{
    size_t calls = (size_t)rig->config->calls, rounds = (size_t)rig->config->rounds;
    struct bench benches[] = {
        {.name = "filter, NodeNames",
         .floor_name = "jansson echo",
         .ours = &rig->extender,
         .floor = &rig->floor,
         .requests = b->filter[BODIES_SCHEDULER],
         .floor_requests = b->filter[BODIES_SCHEDULER],
         .n_requests = BODIES_ORDERS,
         .calls = calls,
         .calls16 = 4 * calls},
        {.name = "filter, shuffled",
         .floor_name = "jansson echo",
         .ours = &rig->extender,
         .floor = &rig->floor,
         .requests = b->filter[BODIES_SHUFFLED],
         .floor_requests = b->filter[BODIES_SHUFFLED],
         .n_requests = BODIES_ORDERS,
         .calls = calls,
         .calls16 = 4 * calls},
        {.name = "prioritize, NodeNames",
         .floor_name = "jansson echo",
         .ours = &rig->extender,
         .floor = &rig->floor,
         .requests = b->prioritize[BODIES_SCHEDULER],
         .floor_requests = b->prioritize[BODIES_SCHEDULER],
         .n_requests = BODIES_ORDERS,
         .calls = calls,
         .calls16 = 4 * calls},
        {.name = "prioritize, shuffled",
         .floor_name = "jansson echo",
         .ours = &rig->extender,
         .floor = &rig->floor,
         .requests = b->prioritize[BODIES_SHUFFLED],
         .floor_requests = b->prioritize[BODIES_SHUFFLED],
         .n_requests = BODIES_ORDERS,
         .calls = calls,
         .calls16 = 4 * calls},
        {.name = "filter, whole Nodes",
         .floor_name = "jansson echo",
         .ours = &rig->extender,
         .floor = &rig->floor,
         .requests = b->full,
         .floor_requests = b->full,
         .n_requests = ARRAY_LEN(b->full),
         .calls = calls / 20},
        {.name = "bind",
         .floor_name = "the API call alone",
         .ours = &rig->extender,
         .floor = &rig->sim,
         .requests = b->bind,
         .floor_requests = b->binding,
         .n_requests = b->n_pods,
         .once = true,
         .calls = BINDS / 2,
         .calls16 = BINDS / 2},
        {.name = "filter, best node",
         .floor_name = "jansson echo",
         .ours = &rig->extender,
         .floor = &rig->floor,
         .requests = b->filter[BODIES_SCHEDULER],
         .floor_requests = b->filter[BODIES_SCHEDULER],
         .n_requests = BODIES_ORDERS,
         .calls = calls,
         .calls16 = 4 * calls,
         .best = true},
    };
    double mib = 0;
    printf("  %-22s %16s  %-20s %17s  %-5s  %13s  %13s  %s\n", "", "p50 ms ours/floor",
           "ratio (spread)", "p99 ours/floor", "ratio", "calls/s at 1", "calls/s at 16",
           "cpu ms");
    buf_adds(json, "\"calls\":[");
    struct span only = span_of(rig->config->only);
    for (size_t i = 0; i < ARRAY_LEN(benches); i++) {
        if (!span_starts(span_of(benches[i].name), only))
            continue;
        if (benches[i].best) {
            mib = server_mib(&rig->extender);
            server_stop(&rig->extender);
            start_extender(rig, "on", true);
            wait_leader(&rig->extender);
        }
        warm_up(&benches[i]);
        for (size_t round = 0; round < rounds; round++)
            bench_round(&benches[i]);
        report(&benches[i], json);
        rig->failed += benches[i].failed;
    }
    json->n -= json->p[json->n - 1] == ',';
    buf_adds(json, "],");
    double last = server_mib(&rig->extender);
    printf("  resident after all calls: %.1f MiB", mib > 0 ? mib : last);
    buf_printf(json, "\"resident_at_end_mib\":%.1f", mib > 0 ? mib : last);
    if (mib > 0) {
        printf("; of the extender with the best node: %.1f MiB", last);
        buf_printf(json, ",\"resident_best_mib\":%.1f", last);
    }
    printf("\n");
    count_all(rig, benches, ARRAY_LEN(benches), json);
}

static void bench_size(struct rig *rig, long nodes, struct buf *json)
{
    struct bodies bodies;
    printf("%ld nodes, %ld pods, --node-score %s\n", nodes, nodes * 8,
           rig->config->score);
    buf_printf(json, "{\"nodes\":%ld,\"pods\":%ld,", nodes, nodes * 8);
    start_sim(rig, nodes);
    measure_starts(rig, json);
    bodies_make(&bodies, rig->sim.port, rig->extender.port, (size_t)nodes,
                (size_t)rig->config->rounds * BINDS + COUNTS_CALLS);
    run_all(rig, &bodies, json);
    buf_adds(json, "},");
    bodies_fini(&bodies);
    server_stop(&rig->extender);
    server_stop(&rig->sim);
}

static void rig_init(struct rig *rig, const struct config *config)
{
    const char *tmp = getenv("TMPDIR");
    *rig = (struct rig){.config = config,
                        .dir = xasprintf("%s/gpushare-bench-XXXXXX", tmp ? tmp : "/tmp")};
    if (!mkdtemp(rig->dir)) {
        perror("bench: mkdtemp");
        exit(1);
    }
    rig->kubeconfig = xasprintf("%s/kubeconfig", rig->dir);
    rig->lease = xasprintf("%s/lease.yaml", rig->dir);
    start_floor(rig);
}

static void rig_fini(struct rig *rig)
{
    static const char *const files[] = {"kubeconfig", "lease.yaml", "kube-sim.log",
                                        "extender.log", "floor.log"};
    server_stop(&rig->floor);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        cleanup_free char *path = xasprintf("%s/%s", rig->dir, files[i]);
        unlink(path);
    }
    rmdir(rig->dir);
    free(rig->dir);
    free(rig->kubeconfig);
    free(rig->lease);
}

static void bench_sizes(struct rig *rig, struct buf *json)
{
    struct span rest = span_of(rig->config->nodes);
    buf_printf(json, "{\"node_score\":\"%s\",\"sizes\":[", rig->config->score);
    while (rest.n) {
        int64_t nodes;
        struct span word = span_cut(&rest, ',');
        if (!span_i64(word, &nodes) || nodes < 2 || nodes > 99999) {
            fprintf(stderr,
                    "bench: --nodes: \"%.*s\": expected a number from 2 to 99999\n",
                    SPAN_ARG(word));
            exit(2);
        }
        bench_size(rig, (long)nodes, json);
    }
    json->n--;
    buf_adds(json, "]}\n");
}

int main(int argc, char **argv)
{
    struct config config = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct err err;
    switch (
        opt_load(&program, &config, argc, argv, (char *[]){NULL}, NULL, stdout, &err)) {
    case OPT_DONE:
        opt_free(&program, &config);
        return 0;
    case OPT_FAILED:
        fprintf(stderr, "bench: %s\n", err.msg);
        return 2;
    case OPT_RUN:
        break;
    }
    struct rig rig;
    cleanup_buf struct buf json = {0};
    rig_init(&rig, &config);
    bench_sizes(&rig, &json);
    write_file(config.out, json.p);
    size_t failed = rig.failed;
    rig_fini(&rig);
    opt_free(&program, &config);
    if (failed)
        fprintf(stderr, "bench: %zu calls failed: the results are invalid\n", failed);
    return failed ? 1 : 0;
}
