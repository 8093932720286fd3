/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "lib/cluster.h"
#include "replay/replay.h"

/*
 * The benchmarks with the real kube-scheduler: pods per second (bench cluster), and what share
 * of a trace's cards it allocates (bench openb).
 *
 * No kubelet runs, and nothing simulates one: a node is created Ready and stays so, because
 * controllers and kwok are stopped. kube-scheduler's limit of 50 calls per second is lifted.
 * What it does is read from the API server's audit log.
 */

enum {
    CREATORS = 4,
    PODS_OF_A_NODE = 1001,
    IN_FLIGHT = 64,
    WAIT_S = 1200,
    FIRST_SEED = 42, /* of the orders of pods, as gpushare-replay has it */
    SETTLE_MS = 120 * 1000,
};
/* Nodes without cards; together they have room for every pod without cards. */
enum { PLAIN_CPU = 96, PLAIN_MIB = 512 << 10 };

#define TAINT  "gpushare"
#define TAINTS "[{\"key\":\"" TAINT "\",\"effect\":\"NoSchedule\"}]"
#define NODES  "/api/v1/nodes"
#define PODS   CLUSTER_PODS

struct setup {
    const char *name;
    enum { NONE, ECHO, OURS } extender;
    const char *answer; /* option of OURS */
    int weight;         /* of the extender's points; 0: prioritize is not called */
    int percentage;     /* percentageOfNodesToScore; 0: kube-scheduler's default */
    bool tainted;       /* nodes with cards take only pods with cards */
    bool all_pods;      /* the extender decides about pods without cards too */
    bool variant;       /* runs only if --setups names it */
};

struct config {
    int64_t n_nodes, n_pods, rounds; /* cluster */
    char *nodes, *pods, *setups;     /* openb */
    int64_t seeds;
};

#define ALL  "--filter-answer=all"
#define BEST "--filter-answer=best"

/* Both benchmarks have a trace, whose nodes and pods they create. */
static struct real {
    struct trace trace;
    uint32_t card_units; /* of aliyun.com/gpu-mem */
    size_t plain;        /* nodes without cards */
    size_t left;         /* pods of the last run */
    bool tainted;
    char *scheduler; /* its shipped configuration */
    struct program echo;
} r;

/* -- nodes -- */

/* Replaces the taints of the Node by this JSON list; "null": none. */
static void taint_node(struct span name, const char *taints)
{
    cleanup_free char *path = xasprintf(NODES "/%.*s", SPAN_ARG(name));
    cleanup_free char *patch = xasprintf("{\"spec\":{\"taints\":%s}}", taints);
    json_decref(peer_json(&cluster.api, "PATCH", path, patch));
}

/* Creates the Node, and the Scv of its cards. */
static void create_node(const struct trace_node *n)
{
    cleanup_buf struct buf cards = {0}, units = {0};
    uint32_t mib = r.card_units * 1024;
    for (uint32_t k = 0; k < n->cards; k++)
        buf_printf(&cards,
                   "%s{\"id\":%u,\"uuid\":\"GPU-%.*s-%u\",\"health\":\"Healthy\","
                   "\"model\":\"%.*s\",\"totalMemory\":%u,\"freeMemory\":%u}",
                   k ? "," : "", k, SPAN_ARG(n->name), k, SPAN_ARG(n->model), mib, mib);
    if (n->cards)
        cluster_create("/apis/core.run-linux.com/v1/scvs",
                       "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\","
                       "\"metadata\":{\"name\":\"%.*s\"},\"spec\":{"
                       "\"updateInterval\":1000},\"status\":{\"cardNumber\":%u,"
                       "\"updateTime\":\"2026-11-21T09:00:00Z\",\"cardList\":[%s]}}",
                       SPAN_ARG(n->name), n->cards, cards.p);
    buf_adds(&units, "");
    if (n->cards)
        buf_printf(&units,
                   ",\"aliyun.com/gpu-mem\":\"%u\",\"aliyun.com/gpu-count\":\"%u\"",
                   n->cards * r.card_units, n->cards);
    cluster_create(
        NODES,
        "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
        "\"%.*s\",\"labels\":{\"kubernetes.io/hostname\":\"%.*s\"}},"
        "\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}],"
        "\"capacity\":{\"cpu\":\"%" PRId64 "m\",\"memory\":\"%" PRId64
        "Mi\",\"pods\":\"%d\"%s}}}",
        SPAN_ARG(n->name), SPAN_ARG(n->name), n->cpu_milli, n->memory_mib, PODS_OF_A_NODE,
        units.p);
    taint_node(n->name, "null"); /* the API server taints each new Node */
}

static void create_nodes(void *ctx, size_t creator)
{
    (void)ctx;
    for (size_t i = creator; i < r.trace.n_nodes; i += CREATORS)
        create_node(&r.trace.nodes[i]);
}

/* Taints the nodes with cards, and creates or deletes those without. */
static void taint_nodes(void *ctx, size_t creator)
{
    (void)ctx;
    for (size_t i = creator; i < r.trace.n_nodes; i += CREATORS)
        if (r.trace.nodes[i].cards)
            taint_node(r.trace.nodes[i].name, r.tainted ? TAINTS : "null");
    for (size_t i = creator; i < r.plain; i += CREATORS) {
        cleanup_free char *name = xasprintf("plain-%04zu", i);
        cleanup_free char *path = xasprintf(NODES "/%s", name);
        if (r.tainted)
            create_node(&(struct trace_node){.name = span_of(name),
                                             .cpu_milli = PLAIN_CPU * 1000,
                                             .memory_mib = PLAIN_MIB});
        else
            cluster_delete(path);
    }
}

/* Stops all programs but etcd and kube-apiserver, and creates the nodes. */
static void create_cluster(void)
{
    r.scheduler = temp_read(cluster.dir, "scheduler.yaml");
    cluster_stop("kube-scheduler", "KILL");
    cluster_stop("gpushare-extender", "TERM");
    cluster_stop("kwok", "KILL");
    cluster_stop("kube-controller-manager", "KILL");
    lib_threads(CREATORS, create_nodes, NULL);
}

/* -- setups -- */

static bool begins(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* The shipped configuration with the values of this setup. A pod that fits nowhere stays
 * pending, and kube-scheduler repeats each that the extender rejected after other binds: by
 * default after 1 to 10 s, here after 30 to 600. */
static void configure(const struct setup *s)
{
    cleanup_buf struct buf out = {0};
    cleanup_free char *text = xstrdup(r.scheduler);
    char *rest = text, *line;
    bool in_resources = false;
    while ((line = strsep(&rest, "\n"))) {
        if (begins(line, "extenders:") && s->extender == NONE)
            break;
        in_resources = begins(line, "  managedResources:") ||
                       (in_resources && (begins(line, "  - ") || begins(line, "    ") ||
                                         begins(line, "  #")));
        if ((in_resources && s->all_pods) || begins(line, "percentageOfNodesToScore:") ||
            begins(line, "  weight:") || (!s->weight && strstr(line, "prioritizeVerb:")))
            continue;
        if (s->extender == ECHO && strstr(line, "urlPrefix:"))
            buf_printf(&out, "- urlPrefix: http://127.0.0.1:%u\n",
                       program_port(&r.echo, "listening on "));
        else
            buf_printf(&out, "%s\n", line);
        if (begins(line, "- urlPrefix:") && s->weight)
            buf_printf(&out, "  weight: %d\n", s->weight);
        if (begins(line, "clientConnection:"))
            buf_adds(&out, "  qps: 10000\n  burst: 20000\n");
        if (begins(line, "kind: "))
            buf_adds(&out, "podInitialBackoffSeconds: 30\npodMaxBackoffSeconds: 600\n");
        if (begins(line, "kind: ") && s->percentage)
            buf_printf(&out, "percentageOfNodesToScore: %d\n", s->percentage);
    }
    temp_write(cluster.dir, "scheduler.yaml", out.p);
}

static void start_extender(const struct setup *s)
{
    if (r.tainted != s->tainted) {
        r.tainted = s->tainted;
        lib_threads(CREATORS, taint_nodes, NULL);
    }
    if (s->extender == OURS) {
        cluster_start_with("gpushare-extender",
                           s->all_pods ? ARGV(s->answer, "--bind-any") : ARGV(s->answer));
        extender_wait_answers(&cluster.extender);
    }
    if (s->extender == ECHO) {
        cleanup_free char *port = xasprintf("%u", cluster.api.port);
        cleanup_free char *pki = temp_path(cluster.dir, "pki");
        lib_program(&r.echo, "bench", ARGV("floor", "--api", port, "--pki", pki),
                    ARGV(NULL));
    }
    configure(s);
}

/* Checks that no card is overcommitted. */
static void stop_programs(const struct setup *s)
{
    cluster_stop("kube-scheduler", "KILL");
    if (s->extender == ECHO)
        program_stop(&r.echo);
    if (s->extender != OURS)
        return;
    oracle_check(&cluster.api);
    cluster_stop("gpushare-extender", "TERM");
}

/* -- pods -- */

static void create_pod(size_t i, const struct trace_pod *pod)
{
    cleanup_buf struct buf out = {0};
    buf_printf(
        &out, "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p%05zu\"",
        i);
    if (pod->models.n)
        buf_adds(&out, ",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"");
    for (size_t k = 0; k < pod->models.n; k++)
        buf_addc(&out, pod->models.p[k] == '|' ? ',' : pod->models.p[k]);
    buf_adds(&out, pod->models.n ? "\"}},\"spec\":{" : "},\"spec\":{");
    if (pod->cards)
        buf_adds(&out, "\"tolerations\":[{\"key\":\"" TAINT "\"}],");
    buf_printf(&out,
               "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{"
               "\"requests\":{\"cpu\":\"%" PRId64 "m\",\"memory\":\"%" PRId64 "Mi\"}",
               pod->cpu_milli, pod->memory_mib);
    if (pod->cards && pod->gpu_milli < TRACE_CARD)
        buf_printf(&out, ",\"limits\":{\"aliyun.com/gpu-mem\":\"%" PRId64 "\"}",
                   pod->gpu_milli * pod->cards);
    else if (pod->cards)
        buf_printf(&out, ",\"limits\":{\"aliyun.com/gpu-count\":\"%u\"}", pod->cards);
    buf_adds(&out, "}}]}}");
    cluster_create(PODS, "%s", out.p);
}

static void create_pods(void *ctx, size_t creator)
{
    (void)ctx;
    for (size_t i = creator; i < r.trace.n_pods; i += CREATORS)
        create_pod(i, &r.trace.pods[i]);
}

static void delete_pods(void *ctx, size_t creator)
{
    (void)ctx;
    for (size_t i = creator; i < r.left; i += CREATORS) {
        cleanup_buf struct buf reply = {0};
        cleanup_free char *path = xasprintf(PODS "/p%05zu?gracePeriodSeconds=0", i);
        unsigned status = peer_call(&cluster.api, "DELETE", path, NULL, &reply);
        ck_assert_msg(status == 200 || status == 404, "%s: %u %s", path, status, reply.p);
    }
}

/* Has kube-scheduler said of each pending pod that no node can take it? */
static bool all_settled(void)
{
    cleanup_json json_t *pending = cluster_items(PODS "?fieldSelector=spec.nodeName%3D");
    size_t i, k;
    json_t *pod, *c;
    json_array_foreach(pending, i, pod)
    {
        bool settled = false;
        json_array_foreach(lib_at(pod, "status.conditions"), k, c) settled |=
            strcmp(lib_str(c, "type"), "PodScheduled") == 0 &&
            strcmp(lib_str(c, "reason"), "Unschedulable") == 0;
        if (!settled)
            return false;
    }
    return true;
}

/* -- the audit log -- */

/* What the log says about the pods of a run. */
struct log {
    long end; /* read up to here */
    enum { UNDECIDED, REJECTED, BOUND } * pods;
    size_t n, decided;   /* of the pods */
    struct series times; /* of the Bindings, in seconds since 1970 */
};

static FILE *open_log(const struct log *log)
{
    cleanup_free char *path = temp_path(cluster.dir, "log/audit.log");
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, log->end, log->end ? SEEK_SET : SEEK_END), 0);
    return f;
}

static void log_begin(struct log *log, size_t n)
{
    *log = (struct log){.n = n, .pods = xcalloc(n, sizeof *log->pods)};
    FILE *f = open_log(log);
    log->end = ftell(f);
    fclose(f);
}

static void log_fini(struct log *log)
{
    free(log->pods);
    free(log->times.of);
}

/* Is the rest of a request's path this subresource? A query may follow. */
static bool names(const char *rest, const char *subresource)
{
    size_t n = strlen(subresource);
    return strncmp(rest, subresource, n) == 0 && (rest[n] == '"' || rest[n] == '?');
}

/* A Binding, or kube-scheduler's condition of a pod that it could not bind. */
static void read_line(struct log *log, const char *line)
{
    static const char uri[] = "\"requestURI\":\"" PODS "/p",
                      stage[] = "\"stageTimestamp\":\"";
    const char *at = strstr(line, uri), *time = strstr(line, stage);
    char *rest;
    int64_t seconds;
    double fraction;
    if (!at)
        return;
    size_t pod = strtoul(at + strlen(uri), &rest, 10);
    bool binding = names(rest, "/binding") && strstr(line, "\"code\":201");
    bool status = names(rest, "/status") && strstr(line, "\"verb\":\"patch\"");
    if (pod >= log->n || (!binding && !status))
        return;
    log->decided += log->pods[pod] == UNDECIDED;
    bool again = log->pods[pod] == BOUND;
    log->pods[pod] = again || binding ? BOUND : REJECTED;
    if (!binding || again)
        return;
    struct span text = span_of(time ? time + strlen(stage) : "");
    ck_assert(clock_parse(span_cut(&text, '"'), &seconds));
    ck_assert_int_eq(sscanf(time + strlen(stage), "%*[^.]%lf", &fraction), 1);
    series_note(&log->times, (double)seconds + fraction);
}

static void log_read(struct log *log)
{
    FILE *f = open_log(log);
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, f)) > 0 && line[n - 1] == '\n') {
        log->end += n;
        read_line(log, line);
    }
    free(line);
    fclose(f);
}

/* Pods per second between the Bindings of the first and the last tenth. */
static double log_rate(struct log *log)
{
    double s = series_quantile(&log->times, 0.9) - series_quantile(&log->times, 0.1);
    return s > 0 ? 0.8 * (double)log->times.n / s : 0;
}

/* Waits until `count`, a field of log, is n: the pods that are bound, or also the rejected. */
static void log_wait(struct log *log, const size_t *count, size_t n,
                     const struct setup *s)
{
    int64_t end = lib_now_ms() + WAIT_S * 1000;
    for (log_read(log); *count < n; log_read(log)) {
        ck_assert_msg(lib_now_ms() < end, "%s: after %d s %zu of %zu pods are decided",
                      s->name, WAIT_S, *count, n);
        usleep(2000);
    }
}

/* -- bench cluster -- */

static const struct setup turns[] = {
    {.name = "none", .percentage = 100},
    {.name = "none-part", .percentage = 0},
    {.name = "echo", .extender = ECHO, .percentage = 100},
    {.name = "echo+", .extender = ECHO, .weight = 3, .percentage = 100},
    {.name = "all", .extender = OURS, .answer = ALL, .weight = 3, .percentage = 100},
    {.name = "best", .extender = OURS, .answer = BEST, .weight = 3, .percentage = 100},
    {.name = "best-part", .extender = OURS, .answer = BEST, .weight = 3},
};

/* The programs whose CPU time is measured. */
static const char *const programs[] = {"kube-scheduler", "kube-apiserver", "etcd",
                                       "gpushare-extender"};
enum { SCHEDULER, EXTENDER = 3, PROGRAMS };

static double cpu_ms(int program, const struct setup *s)
{
    if (program == EXTENDER && s->extender != OURS)
        return s->extender == ECHO ? vitals_cpu_ms(r.echo.pid) : 0;
    return vitals_cpu_ms(cluster_pid(programs[program]));
}

/* Returns pods per second; adds the CPU time of each program, of echo as of the extender. */
static double turn_run(const struct setup *s, double cpu[PROGRAMS])
{
    struct log log;
    lib_threads(CREATORS, create_pods, NULL);
    start_extender(s);
    log_begin(&log, r.trace.n_pods);
    for (int p = SCHEDULER + 1; p < PROGRAMS; p++)
        cpu[p] -= cpu_ms(p, s);
    cluster_start("kube-scheduler");
    /* A bind that the API server was too slow for is tried again. */
    log_wait(&log, &log.times.n, log.n, s);
    for (int p = 0; p < PROGRAMS; p++)
        cpu[p] += cpu_ms(p, s);
    double rate = log_rate(&log);
    log_fini(&log);
    stop_programs(s);
    cluster_delete_pods();
    return rate;
}

static bool is_selected(const struct setup *s, const char *names)
{
    struct span rest = span_of(names);
    while (rest.n)
        if (span_eq(span_cut(&rest, ','), span_of(s->name)))
            return true;
    return !names && !s->variant;
}

static void run_cluster(void *arg)
{
    const struct config *config = arg;
    static double rates[ARRAY_LEN(turns)][BENCH_ROUNDS], cpu[ARRAY_LEN(turns)][PROGRAMS];
    size_t rounds = (size_t)config->rounds;
    r.trace = (struct trace){.n_nodes = (size_t)config->n_nodes,
                             .n_pods = (size_t)config->n_pods};
    r.trace.nodes = xcalloc(r.trace.n_nodes, sizeof *r.trace.nodes);
    r.trace.pods = xcalloc(r.trace.n_pods, sizeof *r.trace.pods);
    r.card_units = 16;
    for (size_t i = 0; i < r.trace.n_nodes; i++)
        r.trace.nodes[i] = (struct trace_node){.name = span_of(xasprintf("b%05zu", i)),
                                               .model = SPAN("Tesla T4"),
                                               .cpu_milli = 64000,
                                               .memory_mib = 256 << 10,
                                               .cards = 8};
    for (size_t i = 0; i < r.trace.n_pods; i++)
        r.trace.pods[i] = (struct trace_pod){.cpu_milli = 100,
                                             .memory_mib = 64,
                                             .gpu_milli = (int64_t)(1 + i % 8),
                                             .cards = 1};
    create_cluster();
    for (size_t round = 0; round < rounds; round++)
        for (size_t k = 0; k < ARRAY_LEN(turns); k++) {
            if (!is_selected(&turns[k], config->setups))
                continue;
            rates[k][round] = turn_run(&turns[k], cpu[k]);
            printf("round %zu, %s: %.0f pods/s\n", round + 1, turns[k].name,
                   rates[k][round]);
        }
    printf("\n%zu nodes, %zu pods, %zu rounds; mean processor time in ms per pod\n\n"
           "| extender | pods/s (spread) | kube-scheduler | kube-apiserver | etcd | "
           "extender |\n|---|---|---|---|---|---|\n",
           r.trace.n_nodes, r.trace.n_pods, rounds);
    for (size_t k = 0; k < ARRAY_LEN(turns); k++) {
        if (!is_selected(&turns[k], config->setups))
            continue;
        double median = rounds_median(rates[k], rounds);
        printf("| %s | %.0f (%.0f-%.0f)", turns[k].name, median, rates[k][0],
               rates[k][rounds - 1]);
        for (int p = 0; p < PROGRAMS; p++)
            printf(" | %.2f", cpu[k][p] / (double)(rounds * r.trace.n_pods));
        printf(" |\n");
    }
}

/* -- bench openb -- */

/* clang-format off */
static const struct setup setups[] = {
    {.name = "shipped", .extender = OURS, .answer = ALL, .weight = 3},
    {.name = "recommended", .extender = OURS, .answer = BEST, .weight = 3, .tainted = true},
    {.name = "all-pods", .extender = OURS, .answer = BEST, .weight = 21, .all_pods = true},
    {.name = "recommended-100", .extender = OURS, .answer = BEST, .weight = 3, .percentage = 100, .tainted = true, .variant = true},
    {.name = "untainted", .extender = OURS, .answer = BEST, .weight = 3, .percentage = 100, .variant = true},
    {.name = "recommended-all", .extender = OURS, .answer = ALL, .weight = 3, .percentage = 100, .tainted = true, .variant = true},
};
/* clang-format on */

/* The pods of one seed in the order of gpushare-replay: each pod of the trace once, then pods
 * drawn at random, until more than 100 percent of the cards are requested. */
struct arrivals {
    const struct trace_pod **pods; /* borrowed from the trace */
    size_t n, cap;
};

static double percent(int64_t milli)
{
    return 100.0 * (double)milli / (double)r.trace.capacity;
}

static int64_t demand(const struct trace_pod *pod)
{
    return pod->gpu_milli * pod->cards;
}

static void arrive(struct arrivals *a, uint64_t seed)
{
    struct rng rng;
    struct replay_stream stream;
    struct replay_at_load end = {.load = 100};
    int64_t arrived = 0;
    rng_init(&rng, seed);
    replay_stream_start(&stream, &r.trace, &rng);
    while (!end.beyond) {
        MEM_GROW(a->pods, a->cap, a->n + 1);
        a->pods[a->n] = replay_stream_next(&stream);
        arrived += demand(a->pods[a->n++]);
        replay_sample(&end, percent(arrived), 0);
    }
    free(stream.order);
}

/* alloc: percent of all cards that are allocated when 100 percent are requested; first:
 * percent requested at the first rejection, 100: none. */
struct line {
    double alloc, first;
};

static struct line line_of(const struct arrivals *a, const struct log *log)
{
    struct line line = {.first = 100};
    struct replay_at_load end = {.load = 100};
    int64_t arrived = 0, allocated = 0;
    bool rejected = false;
    for (size_t i = 0; i < a->n; i++) {
        bool bound = log->pods[i] == BOUND;
        arrived += demand(a->pods[i]);
        allocated += bound ? demand(a->pods[i]) : 0;
        if (!bound && !rejected)
            line.first = percent(arrived);
        rejected |= !bound;
        replay_sample(&end, percent(arrived), percent(allocated));
    }
    line.alloc = end.n ? end.sum / (double)end.n : 0;
    return line;
}

/* The pods arrive as fast as kube-scheduler binds them, and stay. */
static struct line pack(const struct setup *s, uint64_t seed)
{
    struct arrivals a = {0};
    struct log log;
    lib_threads(CREATORS, delete_pods, NULL);
    cluster_delete_pods();
    arrive(&a, seed);
    log_begin(&log, a.n);
    start_extender(s);
    cluster_start("kube-scheduler");
    for (size_t i = 0; i < a.n; i++) {
        create_pod(i, a.pods[i]);
        log_wait(&log, &log.decided, i < IN_FLIGHT ? 0 : i - IN_FLIGHT, s);
    }
    log_wait(&log, &log.decided, a.n, s);
    for (int64_t end = lib_now_ms() + SETTLE_MS; !all_settled(); usleep(500 * 1000))
        ck_assert_msg(lib_now_ms() < end,
                      "kube-scheduler has not decided about all pods");
    stop_programs(s);
    log_read(&log);
    struct line line = line_of(&a, &log);
    r.left = a.n;
    free(a.pods);
    log_fini(&log);
    return line;
}

static void run_openb(void *arg)
{
    const struct config *config = arg;
    struct buf texts[2] = {0};
    struct err err = {0};
    int64_t cpu = 0;
    ck_assert_done(file_read(config->nodes, TRACE_MAX_BYTES, &texts[0], &err), err);
    ck_assert_done(file_read(config->pods, TRACE_MAX_BYTES, &texts[1], &err), err);
    ck_assert_done(trace_nodes(&r.trace, config->nodes, buf_span(&texts[0]), &err), err);
    ck_assert_done(trace_pods(&r.trace, config->pods, buf_span(&texts[1]), &err), err);
    /* A card has 1,000 GiB, so that a thousandth of a card is a unit. */
    r.card_units = TRACE_CARD;
    /* So many that twice the trace's pods without cards use all their CPU. */
    for (size_t i = 0; i < r.trace.n_pods; i++)
        cpu += r.trace.pods[i].cards ? 0 : r.trace.pods[i].cpu_milli;
    r.plain = (size_t)(2 * cpu / (PLAIN_CPU * 1000)) + (cpu > 0);
    create_cluster();
    for (size_t k = 0; k < ARRAY_LEN(setups); k++) {
        struct line sum = {0};
        if (!is_selected(&setups[k], config->setups))
            continue;
        for (int64_t i = 0; i < config->seeds; i++) {
            struct line l = pack(&setups[k], (uint64_t)(FIRST_SEED + i));
            sum.alloc += l.alloc;
            sum.first += l.first;
            printf("%s, seed %" PRId64 ": alloc100 %.2f, first %.1f; mean %.2f, %.1f\n",
                   setups[k].name, FIRST_SEED + i, l.alloc, l.first,
                   sum.alloc / (double)(i + 1), sum.first / (double)(i + 1));
        }
    }
}

/* -- the commands -- */

static const struct opt cluster_options[] = {
    BENCH_OPT("nodes", "N", INT, "1000", 1, 99999, n_nodes,
              "Number of nodes with eight cards each."),
    BENCH_OPT("pods", "N", INT, "5000", 1, 99999, n_pods, "Number of pods."),
    BENCH_OPT("rounds", "N", INT, "3", 1, BENCH_ROUNDS, rounds, "Number of rounds."),
    BENCH_OPT("setups", "NAME,...", STRING, NULL, 0, 0, setups,
              "Setups by name, such as none-part,best-part; default: all."),
    {0},
};
static const struct opt openb_options[] = {
    BENCH_OPT("nodes", "FILE", STRING, "openb_node_list_gpu_node.csv", 0, 0, nodes,
              "Nodes of the trace."),
    BENCH_OPT("pods", "FILE", STRING, "openb_pod_list_default.csv", 0, 0, pods,
              "Pods of the trace."),
    BENCH_OPT("seeds", "N", INT, "3", 1, 1000, seeds,
              "Number of random orders of the pods."),
    BENCH_OPT("setups", "NAME,...", STRING, NULL, 0, 0, setups,
              "Setups by name; default: shipped,recommended,all-pods."),
    {0},
};
const struct bench_command bench_cluster = {
    "cluster",
    "measure pods per second through the real kube-scheduler",
    true,
    cluster_options,
    sizeof(struct config),
    run_cluster};
const struct bench_command bench_openb = {
    "openb",
    "measure the packing of a trace by the real kube-scheduler",
    true,
    openb_options,
    sizeof(struct config),
    run_openb};
