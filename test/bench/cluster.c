/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "bench/kube_node.h"
#include "lib/cluster.h"

/*
 * make bench-cluster: pods per second through the real kube-scheduler, in alternating
 * turns:
 *
 *   none       without an extender: kube-scheduler counts node resources
 *   none-part  the same with kube-scheduler's default percentageOfNodesToScore; all turns
 *              without -part have that of policy/
 *   echo       with a minimal extender (echo.c): filter and bind
 *   echo+      with a minimal extender: filter, prioritize and bind
 *   all        with gpushare-extender and --filter-answer=all
 *   best       with gpushare-extender and --filter-answer=best
 *   best-part  the same with kube-scheduler's default percentageOfNodesToScore
 *
 * In each turn the pods are created while kube-scheduler is stopped. Then it is started.
 * The rate is measured between the Bindings of the first and the last tenth of the pods in
 * the API server's audit log. Controllers and kwok are stopped, and the extender
 * runs only in its own turns. kube-scheduler's limit of 50 calls per second is lifted.
 *
 * BENCH_NODES (1000), BENCH_PODS (5000), BENCH_ROUNDS (3)
 */

enum { CREATORS = 4, CARDS_OF_NODE = 8, CARD_MIB = 16384, TURNS_MAX = 99, WAIT_S = 900 };

static const char *const kinds[] = {"none", "none-part", "echo",     "echo+",
                                    "all",  "best",      "best-part"};
enum { NONE, NONE_PART, ECHO, ECHO_PLUS, ALL, BEST, BEST_PART, KINDS };

/* The programs whose CPU time is measured. */
static const char *const programs[] = {"kube-scheduler", "kube-apiserver", "etcd",
                                       "gpushare-extender"};
enum { SCHEDULER, APISERVER, ETCD, EXTENDER, PROGRAMS };

struct turn {
    double rate;             /* pods per second */
    double cpu_ms[PROGRAMS]; /* per pod; EXTENDER: of echo too */
};

static struct bench {
    int nodes, pods, rounds;
    struct turn turns[KINDS][TURNS_MAX];
    struct program echo;
    char *echo_url, *scheduler; /* its shipped configuration */
} b;

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    int n = text && *text ? atoi(text) : otherwise;
    ck_assert_msg(n > 0 && n < 100000, "%s=%s: expected a number from 1 to 99999", name,
                  text);
    return n;
}

/* -- objects -- */

static void create_node(void *ctx, size_t creator)
{
    (void)ctx;
    for (int i = (int)creator; i < b.nodes; i += CREATORS) {
        cleanup_free char *name = xasprintf("b%05d", i);
        kube_node_create(&(struct kube_node){.name = span_of(name),
                                             .model = SPAN("Tesla T4"),
                                             .cpu_milli = 64000,
                                             .memory_mib = 256 << 10,
                                             .pods = 250,
                                             .cards = CARDS_OF_NODE,
                                             .card_units = CARD_MIB / 1024,
                                             .card_mib = CARD_MIB});
    }
}

static void create_pod(void *ctx, size_t creator)
{
    (void)ctx;
    for (int i = (int)creator; i < b.pods; i += CREATORS) {
        cleanup_buf struct buf pod = {0};
        buf_printf(&pod,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":"
                   "\"p%05d\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\","
                   "\"resources\":{\"requests\":{\"cpu\":\"100m\",\"memory\":\"64Mi\"},"
                   "\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"}}}]}}",
                   i, 1 + i % 8);
        kube_node_post("/api/v1/namespaces/default/pods", pod.p);
    }
}

static bool all_bound(void)
{
    cleanup_json json_t *left = cluster_items(
        "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3D&limit=1");
    return json_array_size(left) == 0;
}

static void wait_until_bound(void)
{
    int64_t end = lib_now_ms() + WAIT_S * 1000;
    while (!all_bound()) {
        ck_assert_msg(lib_now_ms() < end, "after %d s some pods are not bound", WAIT_S);
        usleep(500 * 1000);
    }
}

static bool has_none(int kind)
{
    return kind == NONE || kind == NONE_PART;
}

static bool is_echo(int kind)
{
    return kind == ECHO || kind == ECHO_PLUS;
}

static bool is_ours(int kind)
{
    return kind >= ALL;
}

/* -- kube-scheduler's configuration -- */

/* The shipped configuration with the extender of this turn. */
static void configure(int kind)
{
    cleanup_buf struct buf out = {0};
    cleanup_free char *text = xstrdup(b.scheduler);
    char *rest = text, *line;
    bool in_extenders = false;
    while ((line = strsep(&rest, "\n"))) {
        in_extenders |= strncmp(line, "extenders:", 10) == 0;
        if (has_none(kind) && in_extenders)
            break;
        if (kind == ECHO && (strstr(line, "prioritizeVerb:") || strstr(line, "weight:")))
            continue;
        if ((kind == BEST_PART || kind == NONE_PART) &&
            strncmp(line, "percentageOfNodesToScore:", 25) == 0)
            continue;
        if (is_echo(kind) && strstr(line, "urlPrefix:"))
            buf_printf(&out, "- urlPrefix: %s\n", b.echo_url);
        else
            buf_printf(&out, "%s\n", line);
        if (strncmp(line, "clientConnection:", 17) == 0)
            buf_adds(&out, "  qps: 10000\n  burst: 20000\n");
    }
    ck_assert(in_extenders);
    temp_write(cluster.dir, "scheduler.yaml", out.p);
}

/* -- processor time -- */

static pid_t pid_of(int program, int kind)
{
    if (program == EXTENDER && is_echo(kind))
        return b.echo.pid;
    cleanup_free char *name = xasprintf("run/%s.pid", programs[program]);
    cleanup_free char *text = temp_read(cluster.dir, name);
    return (pid_t)atoi(text);
}

static double cpu_ms(pid_t pid)
{
    char path[64];
    struct err err;
    cleanup_buf struct buf stat = {0};
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    ck_assert_msg(file_read(path, 4096, &stat, &err) == 0, "%s", err.msg);
    const char *after = strrchr(stat.p, ')');
    ck_assert_ptr_nonnull(after);
    ck_assert_int_eq(sscanf(after + 1,
                            " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                            &system),
                     2);
    return (double)(user + system) * 1000 / (double)sysconf(_SC_CLK_TCK);
}

/* -- the audit log -- */

static int order(const void *a, const void *c)
{
    double x = *(const double *)a, y = *(const double *)c;
    return x < y ? -1 : x > y;
}

/* Seconds of the day of "2026-11-21T23:24:25.123456Z". */
static double time_of(const char *text)
{
    int h, m;
    double s;
    ck_assert_int_eq(sscanf(text, "%*d-%*d-%*dT%d:%d:%lfZ", &h, &m, &s), 3);
    return h * 3600 + m * 60 + s;
}

/* The times of the Bindings in the log from this offset on; *n of them. New. */
static double *binding_times(long from, size_t *n)
{
    cleanup_free char *path = temp_path(cluster.dir, "log/audit.log");
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t size = 0, cap = 0;
    double *times = NULL;
    *n = 0;
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, from, SEEK_SET), 0);
    while (getline(&line, &size, f) > 0) {
        if (!strstr(line, "\"subresource\":\"binding\"") || !strstr(line, "\"code\":201"))
            continue;
        cleanup_json json_t *event = json_loads(line, 0, NULL);
        MEM_GROW(times, cap, *n + 1);
        times[(*n)++] = time_of(lib_str(event, "stageTimestamp"));
    }
    free(line);
    fclose(f);
    qsort(times, *n, sizeof *times, order);
    return times;
}

static long audit_end(void)
{
    cleanup_free char *path = temp_path(cluster.dir, "log/audit.log");
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    fseek(f, 0, SEEK_END);
    long end = ftell(f);
    fclose(f);
    return end;
}

/* -- turns -- */

static void start_echo(void)
{
    cleanup_free char *program = program_path("bench-echo");
    cleanup_free char *url = xasprintf("https://127.0.0.1:%u", cluster.api.port);
    cleanup_free char *ca = temp_path(cluster.dir, "pki/ca.crt");
    cleanup_free char *crt = temp_path(cluster.dir, "pki/admin.crt");
    cleanup_free char *key = temp_path(cluster.dir, "pki/admin.key");
    program_start(&b.echo, lib_dir, ARGV(program, url, ca, crt, key));
    free(b.echo_url);
    b.echo_url = xasprintf("http://127.0.0.1:%u", program_port(&b.echo, "listening on"));
}

/* Checks that no card is overcommitted. */
static void check(int kind)
{
    if (is_ours(kind))
        oracle_check(&cluster.api);
}

static void run(int kind, struct turn *turn)
{
    double before[PROGRAMS] = {0};
    size_t n;
    lib_threads(CREATORS, create_pod, NULL);
    if (is_echo(kind))
        start_echo();
    if (is_ours(kind)) {
        cluster_start_with(
            "gpushare-extender",
            ARGV(kind == ALL ? "--filter-answer=all" : "--filter-answer=best"));
        extender_wait_answers(&cluster.extender);
    }
    configure(kind);
    long from = audit_end();
    for (int p = APISERVER; p < PROGRAMS; p++)
        if (p != EXTENDER || !has_none(kind))
            before[p] = cpu_ms(pid_of(p, kind));
    cluster_start("kube-scheduler");
    wait_until_bound();
    for (int p = 0; p < PROGRAMS; p++)
        if (p != EXTENDER || !has_none(kind))
            turn->cpu_ms[p] = (cpu_ms(pid_of(p, kind)) - before[p]) / b.pods;
    cluster_stop("kube-scheduler", "KILL");
    cleanup_free double *times = binding_times(from, &n);
    ck_assert_uint_eq(n, (size_t)b.pods);
    size_t tenth = n / 10;
    turn->rate = (double)(n - 2 * tenth) / (times[n - 1 - tenth] - times[tenth]);
    check(kind);
    if (is_echo(kind))
        program_stop(&b.echo);
    if (is_ours(kind))
        cluster_stop("gpushare-extender", "TERM");
    cluster_delete_pods();
}

static int turn_order(const void *a, const void *c)
{
    return order(&((const struct turn *)a)->rate, &((const struct turn *)c)->rate);
}

static void print_all(void)
{
    double median[KINDS];
    printf("\n%d nodes, %d pods, %d rounds; processor time in ms per pod\n\n", b.nodes,
           b.pods, b.rounds);
    printf("| extender | pods/s (spread) | of echo | kube-scheduler | kube-apiserver | "
           "etcd | extender |\n|---|---|---|---|---|---|---|\n");
    for (int kind = 0; kind < KINDS; kind++) {
        qsort(b.turns[kind], (size_t)b.rounds, sizeof **b.turns, turn_order);
        median[kind] = b.turns[kind][b.rounds / 2].rate;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        const struct turn *t = b.turns[kind], *m = &t[b.rounds / 2];
        printf("| %s | %.0f (%.0f-%.0f) | %.3f | %.2f | %.2f | %.2f | %.2f |\n",
               kinds[kind], m->rate, t[0].rate, t[b.rounds - 1].rate,
               m->rate / median[ECHO], m->cpu_ms[SCHEDULER], m->cpu_ms[APISERVER],
               m->cpu_ms[ETCD], m->cpu_ms[EXTENDER]);
    }
    fflush(stdout);
}

START_TEST(pods_per_second)
{
    b.nodes = number("BENCH_NODES", 1000);
    b.pods = number("BENCH_PODS", 5000);
    b.rounds = number("BENCH_ROUNDS", 3);
    ck_assert_int_le(b.rounds, TURNS_MAX);
    b.scheduler = temp_read(cluster.dir, "scheduler.yaml");
    kube_node_stop_programs();
    lib_threads(CREATORS, create_node, NULL);
    for (int round = 0; round < b.rounds; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            run(kind, &b.turns[kind][round]);
            printf("round %d, %s: %.0f pods/s\n", round + 1, kinds[kind],
                   b.turns[kind][round].rate);
            fflush(stdout);
        }
    print_all();
    free(b.scheduler);
    free(b.echo_url);
}
END_TEST

CLUSTER_MAIN("bench-cluster", 7200, ARGV("--nodes", "0"), pods_per_second)
