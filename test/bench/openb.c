/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "bench/openb_churn.h"
#include "bench/openb_cluster.h"
#include "lib/cluster.h"

/*
 * make bench-openb: what share of a trace's cards the real kube-scheduler allocates, in the
 * setups below. The pods of the trace arrive in the order of gpushare-replay, as fast as
 * kube-scheduler binds them, and stay. Each line also has the result of gpushare-replay for
 * the same arrivals:
 *
 *   SETUP alloc100 95.12 replay 95.30 first 94.1 pods/s 140
 *
 *   none         kube-scheduler counts aliyun.com/gpu-mem of a node; a bound pod counts if one
 *                of the cards has what it asks for
 *   shipped      policy/ and the answer of filter as in version 0.1: 0 to 10 points with
 *                weight 3, a part of the nodes
 *   recommended  policy/kube-scheduler-config.yaml: tainted nodes, filter answers with the
 *                best node. Pods without cards have other nodes; gpushare-replay gets none of
 *                them
 *   all-pods     policy/kube-scheduler-config-all-pods.yaml
 *   untainted    recommended on nodes without taints: pods without cards take their CPU, too
 *   ...-40       kube-scheduler's default percentageOfNodesToScore, 40 % of 1,213 nodes
 *   ...-all      filter answers with all nodes; 0 to 10 points with weight 3, as in policy/
 *   ...-points   the same with weight 21
 *
 *   alloc100  percent of all cards that are allocated when 100 percent have been requested
 *   first     percent requested when the first pod was rejected
 *
 * OPENB_NODES, OPENB_PODS  the trace; default: that of the folder OPENB_DIR
 * OPENB_SEEDS (3)          orders, from OPENB_FIRST_SEED (42) on
 * OPENB_SETUPS             names of setups; default: the first four
 * OPENB_CHURN              percent: pods leave instead, so that at most this share of the
 *                          cards is allocated; the lines then have the rejected share of
 *                          the demand (openb_churn.h)
 */

enum { IN_FLIGHT = 64, RUN_S = 1200 };

/* clang-format off */
#define ALL  {"--filter-answer=all"}
#define BEST {"--filter-answer=best"}
static const struct openb_setup setups[] = {
    {.name = "none"},
    {.name = "shipped", .extender = true, .weight = 3, .options = ALL},
    {.name = "recommended", .extender = true, .tainted = true, .weight = 3, .percentage = 100, .options = BEST},
    {.name = "all-pods", .extender = true, .all_pods = true, .weight = 21, .percentage = 100, .options = BEST},
    /* variants: */
    {.name = "untainted", .variant = true, .extender = true, .weight = 3, .percentage = 100, .options = BEST},
    {.name = "recommended-40", .variant = true, .extender = true, .tainted = true, .weight = 3, .options = BEST},
    {.name = "recommended-all", .variant = true, .extender = true, .tainted = true, .weight = 3, .percentage = 100, .options = ALL},
    {.name = "recommended-points", .variant = true, .extender = true, .tainted = true, .weight = 21, .percentage = 100, .options = ALL},
    {.name = "all-pods-40", .variant = true, .extender = true, .all_pods = true, .weight = 21, .options = BEST},
    {.name = "all-pods-points", .variant = true, .extender = true, .all_pods = true, .weight = 21, .percentage = 100, .options = ALL},
};
/* clang-format on */
enum { SETUPS = ARRAY_LEN(setups) };

static struct bench {
    struct buf texts[2];
    struct trace trace;
    uint64_t seeds, first_seed;
    int64_t churn; /* percent; 0: pods stay */
    size_t left;   /* pods of the previous run; those of the last end with the cluster */
} b;

static int64_t number(const char *name, int64_t otherwise, int64_t max)
{
    const char *text = getenv(name);
    int64_t n = text && *text ? atoll(text) : otherwise;
    ck_assert_msg(n >= 0 && n <= max, "%s=%s: expected a number from 0 to %lld", name,
                  text, (long long)max);
    return n;
}

/* The value of the variable, or the file of the trace's folder. New. */
static char *file_of(const char *variable, const char *file)
{
    const char *path = getenv(variable), *dir = getenv("OPENB_DIR");
    if (path && *path)
        return xstrdup(path);
    ck_assert_msg(dir && *dir, "set OPENB_DIR, or OPENB_NODES and OPENB_PODS");
    return xasprintf("%s/%s", dir, file);
}

static void load(void)
{
    struct err err = {0};
    cleanup_free char *nodes = file_of("OPENB_NODES", "openb_node_list_gpu_node.csv");
    cleanup_free char *pods = file_of("OPENB_PODS", "openb_pod_list_default.csv");
    ck_assert_done(file_read(nodes, TRACE_MAX_BYTES, &b.texts[0], &err), err);
    ck_assert_done(file_read(pods, TRACE_MAX_BYTES, &b.texts[1], &err), err);
    ck_assert_done(trace_nodes(&b.trace, nodes, buf_span(&b.texts[0]), &err), err);
    ck_assert_done(trace_pods(&b.trace, pods, buf_span(&b.texts[1]), &err), err);
    b.seeds = (uint64_t)number("OPENB_SEEDS", 3, 1000);
    ck_assert_msg(b.seeds > 0, "OPENB_SEEDS=0: expected at least one order");
    b.first_seed = (uint64_t)number("OPENB_FIRST_SEED", 42, INT32_MAX);
    b.churn = number("OPENB_CHURN", 0, 100);
}

static bool is_selected(const struct openb_setup *s)
{
    const char *names = getenv("OPENB_SETUPS"), *name = s->name;
    size_t n = strlen(name);
    if (!names || !*names)
        return !s->variant;
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += n)
        if ((at == names || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* -- pods that stay -- */

static void create_all(const struct openb_setup *s, const struct openb_arrivals *a,
                       struct openb_log *log)
{
    int64_t end = lib_now_ms() + RUN_S * 1000;
    size_t created = 0;
    while (log->settled < a->n) {
        openb_log_read(log);
        if (created < a->n && created - log->settled < IN_FLIGHT) {
            openb_cluster_pod(s, created, a->pods[created]);
            created++;
        } else {
            usleep(2000);
        }
        ck_assert_msg(lib_now_ms() < end, "%s: after %d s %zu of %zu pods are decided",
                      s->name, RUN_S, log->settled, a->n);
    }
}

/* With an extender, a bound pod has its cards (oracle_check). */
static void check_cards(const struct openb_arrivals *a, const struct openb_log *log,
                        char *const *nodes, bool *placed)
{
    struct openb_cards *cards = openb_cards_new(a->trace);
    for (size_t i = 0; i < log->n_bound; i++) {
        size_t pod = log->bound[i];
        placed[pod] = openb_cards_take(cards, span_of(nodes[pod]), a->pods[pod]);
    }
    openb_cards_free(cards);
}

struct line {
    double alloc, replay, first, rate;
};

static struct line fill(const struct openb_setup *s, uint64_t seed)
{
    struct openb_arrivals a;
    struct openb_log log;
    openb_cluster_delete_all(b.left);
    openb_arrive(&a, &b.trace, seed);
    cleanup_free uint8_t *seen = xcalloc(a.n, sizeof *seen);
    cleanup_free bool *placed = xcalloc(a.n, sizeof *placed);
    openb_log_begin(&log, seen, a.n);
    openb_cluster_start(s);
    create_all(s, &a, &log);
    openb_cluster_settle();
    openb_cluster_stop(s);
    openb_log_read(&log);
    char **nodes = openb_cluster_nodes(a.n);
    for (size_t i = 0; i < a.n; i++)
        placed[i] = nodes[i] != NULL;
    if (!s->extender)
        check_cards(&a, &log, nodes, placed);
    struct openb_result real = openb_rate(&a, placed);
    struct openb_result replay = openb_replay(&a, s->tainted, seed);
    struct line line = {real.alloc100, replay.alloc100, real.first, openb_log_rate(&log)};
    b.left = a.n;
    for (size_t i = 0; i < a.n; i++)
        free(nodes[i]);
    free(nodes);
    free(a.pods);
    openb_log_fini(&log);
    return line;
}

static struct line churn(const struct openb_setup *s, uint64_t seed)
{
    struct openb_churned c = openb_churn(s, &b.trace, b.churn, seed);
    return (struct line){c.rejected, c.replay, 0, c.rate};
}

static void print(const struct openb_setup *s, const struct line *l)
{
    if (b.churn)
        printf("%s churn %d rejected %.2f replay %.2f pods/s %.0f\n", s->name,
               (int)b.churn, l->alloc, l->replay, l->rate);
    else
        printf("%s alloc100 %.2f replay %.2f first %.1f pods/s %.0f\n", s->name, l->alloc,
               l->replay, l->first, l->rate);
    fflush(stdout);
}

static void run(const struct openb_setup *s)
{
    struct line sum = {0};
    double n = (double)b.seeds;
    for (uint64_t i = 0; i < b.seeds; i++) {
        struct line l;
        uint64_t seed = b.first_seed + i;
        if (b.churn)
            l = churn(s, seed);
        else
            l = fill(s, seed);
        printf("seed %llu: ", (unsigned long long)seed);
        print(s, &l);
        sum.alloc += l.alloc / n;
        sum.replay += l.replay / n;
        sum.first += b.churn ? 0 : l.first / n;
        sum.rate += l.rate / n;
    }
    print(s, &sum);
}

START_TEST(packing)
{
    load();
    openb_cluster_create(&b.trace);
    for (size_t i = 0; i < SETUPS; i++)
        if (is_selected(&setups[i]))
            run(&setups[i]);
    trace_fini(&b.trace);
    buf_fini(&b.texts[0]);
    buf_fini(&b.texts[1]);
}
END_TEST

CLUSTER_MAIN("bench-openb", 14400, ARGV("--nodes", "0"), packing)
