/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "mutants.h"

/*
 * simulate [OPTION...]: the events, the weather, the phases with failures and at rest, and the
 * program. Without a seed: the fixed seeds of the test suite.
 */

const char *const node_names[ALL_NODES] = {"n0", "n1", "n2", "n3", "n4",
                                           "n5", "n6", "n7", "n8", "n9"};

struct event {
    int64_t at;
    uint64_t seq;
    event_fn fn;
    void *arg;
    void (*drop)(void *);
};

int64_t wall_ms(const struct world *w)
{
    return WALL_BASE_MS + w->now_ms;
}

int any(struct world *w, uint64_t n)
{
    return (int)rng_below(&w->rng, n);
}

bool chance(struct world *w, int per_mille)
{
    return !w->quiet && any(w, 1000) < per_mille;
}

int64_t between(struct world *w, int64_t lo, int64_t hi)
{
    return lo + (int64_t)rng_below(&w->rng, (uint64_t)(hi - lo + 1));
}

/* A binary heap by time, then by order of arrival. */
static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void swap(struct world *w, size_t a, size_t b)
{
    struct event e = w->heap[a];
    w->heap[a] = w->heap[b];
    w->heap[b] = e;
}

void at(struct world *w, int64_t when_ms, event_fn fn, void *arg, void (*drop)(void *))
{
    MEM_GROW(w->heap, w->events_cap, w->n_events + 1);
    size_t i = w->n_events++;
    int64_t when = when_ms < w->now_ms ? w->now_ms : when_ms;
    w->heap[i] = (struct event){when, ++w->seq, fn, arg, drop};
    for (; i && earlier(&w->heap[i], &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(w, i, (i - 1) / 2);
}

static struct event take(struct world *w)
{
    struct event first = w->heap[0];
    w->heap[0] = w->heap[--w->n_events];
    for (size_t i = 0;;) {
        size_t best = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < w->n_events; child++)
            if (earlier(&w->heap[child], &w->heap[best]))
                best = child;
        if (best == i)
            return first;
        swap(w, i, best);
        i = best;
    }
}

void trace(struct world *w, const char *fmt, ...)
{
    cleanup_buf struct buf line = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_printf(&line, "%8llu %9.3f  ", (unsigned long long)w->steps,
               (double)w->now_ms / 1000);
    buf_vprintf(&line, fmt, ap);
    va_end(ap);
    if (w->verbose)
        printf("%s\n", line.p);
    size_t i = w->traced++ % TRACE_LINES;
    free(w->trace[i]);
    w->trace[i] = buf_take(&line);
}

void violated(struct world *w, const char *fmt, ...)
{
    va_list ap;
    if (w->failed)
        return;
    w->failed = true;
    size_t from = w->traced > TRACE_LINES ? w->traced - TRACE_LINES : 0;
    for (size_t i = from; !w->verbose && i < w->traced; i++)
        fprintf(stderr, "%s\n", w->trace[i % TRACE_LINES]);
    fprintf(stderr, "seed %llu, step %llu: ", (unsigned long long)w->seed,
            (unsigned long long)w->steps);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

unsigned api_reply_of(struct world *w, const char *method, const char *path,
                      const char *body, json_t **reply)
{
    bool patch = !strcmp(method, "PATCH");
    struct api_request req = {.method = method,
                              .path = path,
                              .query = "",
                              .content_type = patch ? "application/merge-patch+json"
                                                    : "application/json",
                              .body = span_of(body)};
    struct api_reply answer = {0};
    api_handle(w->api, wall_ms(w), &req, &answer);
    if (reply)
        *reply = json_loadb(answer.body.p ? answer.body.p : "", answer.body.n, 0, NULL);
    unsigned status = answer.status;
    api_reply_fini(&answer);
    oracle_update(w);
    return status;
}

unsigned api_call(struct world *w, const char *method, const char *body,
                  const char *path_fmt, ...)
{
    cleanup_buf struct buf path = {0};
    va_list ap;
    va_start(ap, path_fmt);
    buf_vprintf(&path, path_fmt, ap);
    va_end(ap);
    return api_reply_of(w, method, path.p, body, NULL);
}

json_t *api_get(struct world *w, const char *path_fmt, ...)
{
    cleanup_buf struct buf path = {0};
    json_t *object = NULL;
    va_list ap;
    va_start(ap, path_fmt);
    buf_vprintf(&path, path_fmt, ap);
    va_end(ap);
    if (api_reply_of(w, "GET", path.p, "", &object) == 200)
        return object;
    json_decref(object);
    return NULL;
}

static void on_change(void *ctx)
{
    struct world *w = ctx;
    EACH_REPLICA(w, r)
    replica_api_changed(w, r);
}

void world_set_api(struct world *w, struct api *api)
{
    w->api = api;
    api_on_change(w->api, on_change, w);
}

static void tick_api(struct world *w, void *arg)
{
    (void)arg;
    api_tick(w->api, wall_ms(w));
    oracle_update(w);
    at(w, w->now_ms + 250, tick_api, NULL, NULL);
}

/* The columns are the members of struct weather. */
static const struct weather weathers[] = {
    {5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {20, 20, 20, 20, 20, 20, 10, 20, 20, 2, 20, 100, 2, 0},
    {100, 150, 150, 150, 100, 400, 50, 300, 150, 20, 150, 500, 10, 0},
    /* No losses, but maximum delays: lists and calls overlap. */
    {50, 0, 0, 0, 0, 600, 0, 0, 0, 10, 50, 950, 20, 20},
    /* Processes freeze between a decision and its Binding. */
    {10, 0, 50, 0, 0, 100, 0, 0, 0, 0, 0, 200, 150, 0},
};

static void change_weather(struct world *w, void *arg)
{
    (void)arg;
    if (w->quiet)
        return;
    w->weather = ONE_OF(w, weathers);
    at(w, w->now_ms + between(w, 1000, 20000), change_weather, NULL, NULL);
}

static void start_chaos(struct world *w, void *arg);

/* At rest all states must agree. */
static void poll_quiet(struct world *w, void *arg)
{
    (void)arg;
    int64_t quiet_ms = w->now_ms - w->quiet_since_ms;
    bool rest = evictions_idle(w);
    EACH_REPLICA(w, r)
    if (!replica_watches_all(w, r) || ledger_totals(core_ledger(r->core)).reservations)
        w->last_news_ms = w->now_ms; /* a long backoff; a bind that never comes */
    EACH_POD(w, p)
    if (p->deleting)
        w->last_news_ms = w->now_ms; /* others may fit in half a minute */
    if (scheduler_idle(w) && rest && quiet_ms > 12000) {
        oracle_settled(w);
        w->stats.quiets++;
        start_chaos(w, NULL);
    } else if (quiet_ms > 3600 * 1000) {
        violated(w, "no rest after an hour without failures");
    } else {
        at(w, w->now_ms + 500, poll_quiet, NULL, NULL);
    }
}

static void start_quiet(struct world *w, void *arg)
{
    (void)arg;
    trace(w, "failures end");
    w->quiet = true;
    if (w->left) {
        w->left = false;
        put_scv(w, HAMI_NODE, false);
    }
    w->quiet_since_ms = w->last_news_ms = w->now_ms;
    w->weather = weathers[0];
    memset(w->apart_until, 0, sizeof w->apart_until);
    EACH_REPLICA(w, r)
    if (!r->alive)
        replica_boot(w, r);
    at(w, w->now_ms + 500, poll_quiet, NULL, NULL);
}

static void start_chaos(struct world *w, void *arg)
{
    (void)arg;
    trace(w, "failures begin");
    w->quiet = false;
    change_weather(w, NULL);
    users_start(w);
    int64_t more_ms = w->backups ? restores_start(w) : 0;
    at(w, w->now_ms + more_ms + between(w, 3000, 40000), start_quiet, NULL, NULL);
}

bool world_run(struct world *w, int64_t until_ms)
{
    while (w->steps < w->last_step && !w->failed && w->heap[0].at <= until_ms) {
        struct event e = take(w);
        w->now_ms = e.at;
        w->steps++;
        e.fn(w, e.arg);
    }
    if (w->now_ms < until_ms && until_ms < INT64_MAX)
        w->now_ms = until_ms;
    return w->steps < w->last_step && !w->failed;
}

/* Adds what happened, and frees the world. True: no invariant was violated. */
static bool finish(struct world *w, struct stats *sum)
{
#define STAT(name) sum->name += w->stats.name;
    STATS(STAT)
#undef STAT
    bool ok = !w->failed;
    for (size_t i = 0; i < w->n_events; i++)
        if (w->heap[i].drop)
            w->heap[i].drop(w->heap[i].arg);
    EACH_REPLICA(w, r)
    replica_free(r);
    scheduler_free(w);
    queue_free(w);
    barrier_free(w);
    kubelet_free(w);
    restores_free(w);
    free(w->kept);
    free(w->reserved);
    oracle_free(w);
    free(w->ended);
    api_on_change(w->api, NULL, NULL);
    api_free(w->api);
    for (size_t i = 0; i < TRACE_LINES; i++)
        free(w->trace[i]);
    free(w->heap);
    free(w->yard);
    free(w);
    return ok;
}

/* The processes and the API server of a new world. */
static void begin(struct world *w)
{
    struct api_config config = {.seed = w->seed};
    rng_init(&w->rng, w->seed);
    rng_init(&w->plain_rng, w->seed);
    world_set_api(w, api_new(&config));
    oracle_start(w);
    tick_api(w, NULL);
    EACH_REPLICA(w, r)
    {
        r->world = w;
        r->id = (int)(r - w->replicas);
        replica_boot(w, r);
    }
}

/* A yard at rest; its own code makes the failures. */
static bool run_yard(uint64_t seed, bool verbose, struct stats *sum)
{
    struct world *w = xcalloc(1, sizeof *w);
    *w = (struct world){.seed = seed,
                        .last_step = UINT64_MAX,
                        .now_ms = 1000000,
                        .n_replicas = yard_name(seed) ? 1 : (int)(seed % REPLICAS) + 1,
                        .decides = true,
                        .gangs = true,
                        .quiet = true,
                        .weather = weathers[0],
                        .yard = xcalloc(1, sizeof *w->yard),
                        .verbose = verbose};
    begin(w);
    yard_run(w);
    if (w->failed && yard_name(seed))
        fprintf(stderr, "... in the yard %s\n", yard_name(seed));
    return finish(w, sum);
}

/* Runs one seed. True: no invariant was violated. */
static bool run(uint64_t seed, uint64_t steps, bool verbose, struct stats *sum)
{
    struct world *w = xcalloc(1, sizeof *w);
    *w = (struct world){.seed = seed,
                        .last_step = steps,
                        .now_ms = 1000000,
                        .n_replicas = (int)(seed % REPLICAS) + 1,
                        .outsiders = seed % 4 >= 2,
                        .tenants = seed / 4 % 4 != 0,
                        .policy = seed / 4 % 4 == 1,
                        .preempts = seed % 3 == 0 && seed / 2 % 5 != 4,
                        .decides = seed / 2 % 5 >= 3,
                        .gangs = seed / 2 % 5 == 4,
                        .samples = seed % 4 > 0 && seed / 2 % 5 == 3,
                        .in_words = seed % 4 < 2 && seed % 3 == 1,
                        .end_node = NODES,
                        .verbose = verbose};
    w->backups = !w->outsiders && !w->tenants && !w->preempts && !w->gangs;
    EACH_NODE(w, node)
    {
        static const uint8_t lists[NODES] = {
            0, SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER | SCV_ISOLATION_LIBRARY,
            SCV_ISOLATION_KNOWN | SCV_ISOLATION_LIBRARY,
            SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER | SCV_ISOLATION_MPS};
        oracle_all_links(node, &w->links[node]);
        w->isolation[node] = lists[node];
    }
    begin(w);
    agents_start(w);
    scheduler_start(w);
    start_chaos(w, NULL);
    world_run(w, INT64_MAX);
    return finish(w, sum);
}

/* -- the program -- */

/* So many seeds, of 10,000 steps each. */
#if defined(__SANITIZE_ADDRESS__)
#define SEEDS "100"
#define STEPS "1000000"
#else
#define SEEDS "400"
#define STEPS "4000000"
#endif
enum { LONG_RUN = 1000000 };

struct config {
    int64_t seed, steps, seeds;
    bool verbose;
    char *mutant, *yard;
};

#define OPTION(n, a, t, i, at, text)                                                     \
    {                                                                                    \
        .name = n, .arg = a, .type = OPT_##t, .init = i,                                 \
        .offset = offsetof(struct config, at), .help = text                              \
    }
static const struct opt table[] = {
    OPTION("seed", "N", INT, NULL, seed,
           "Run only this seed (default: 0, run --seeds seeds)."),
    OPTION("seeds", "N", INT, SEEDS, seeds, "Number of seeds (default: " SEEDS ")."),
    OPTION("steps", "N", INT, STEPS, steps,
           "Number of events, summed over all seeds (default: " STEPS ")."),
    OPTION("verbose", NULL, BOOL, NULL, verbose, "Print every event (default: false)."),
    OPTION("yard", "NAME", STRING, NULL, yard,
           "Run only this scenario of yard.c (default: those of the seeds)."),
    OPTION("mutant", "NAME", STRING, NULL, mutant,
           "Plant this fault of test/mutants.h; needs a build with SANITIZE=mutants."),
    {0},
};
static const struct opt_program program = {
    .name = "simulate",
    .summary = "the deterministic simulator",
    .version = GPUSHARE_VERSION,
    .table = table,
};

int main(int argc, char **argv)
{
    struct config c = {0};
    struct err err = {0};
    struct stats sum = {0};
    enum opt_result r = opt_load(&program, &c, argc, argv, NULL, NULL, stdout, &err);
    if (r == OPT_FAILED)
        fprintf(stderr, "simulate: %s\n", err.msg);
    if (r != OPT_RUN)
        return r == OPT_FAILED;
    if (c.mutant && !mutants_plant(c.mutant)) {
        fprintf(stderr, "simulate: --mutant=%s: this build has no such fault\n",
                c.mutant);
        return 2;
    }
    json_object_seed(1);
    int failed = 0;
    int64_t seeds = c.seed ? 1 : c.seeds;
    if (c.yard && !yard_seed(c.yard)) {
        fprintf(stderr, "simulate: --yard=%s: there is no such scenario\n", c.yard);
        return 2;
    }
    if (c.yard) {
        failed = !run_yard(yard_seed(c.yard), c.verbose, &sum);
        printf("%d passed, %d failed\n", !failed, failed);
        opt_free(&program, &c);
        return failed;
    }
    for (int64_t i = 1; i <= seeds; i++) {
        uint64_t seed = (uint64_t)(c.seed ? c.seed : i);
        failed += !run(seed, (uint64_t)(c.steps / seeds), c.verbose, &sum);
        failed += !run_yard(seed, c.verbose, &sum);
    }
#define STAT(name)                                                                       \
    printf("%s %llu\n", #name, (unsigned long long)sum.name);                            \
    if (!sum.name && !c.seed && (c.steps >= LONG_RUN || &sum.name == &sum.bound)) {      \
        printf("the simulation does not test: %s\n", #name);                             \
        failed++;                                                                        \
    }
    STATS(STAT)
    printf("counted: %lld simulator seeds\n", (long long)seeds);
    printf("%d passed, %d failed\n", !failed, !!failed);
    opt_free(&program, &c);
    return failed != 0;
}
