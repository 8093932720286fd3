/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool chance(struct world *w, int per_mille)
{
    return !w->quiet && rng_below(&w->rng, 1000) < (uint64_t)per_mille;
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
    for (int i = 0; i < w->n_replicas; i++)
        replica_api_changed(w, w->replicas[i]);
}

static void tick_api(struct world *w, void *arg)
{
    (void)arg;
    api_tick(w->api, wall_ms(w));
    oracle_update(w);
    at(w, w->now_ms + 250, tick_api, NULL, NULL);
}

/* Failure rates: low, medium, high. */
static const struct weather weathers[] = {
    {.delay_ms = 5},
    {.lose_request = 20,
     .lose_reply = 20,
     .duplicate = 20,
     .refuse = 20,
     .slow = 20,
     .not_sent = 10,
     .cut_call = 20,
     .cut_list = 20,
     .cut_watch = 2,
     .lag = 20,
     .slow_list = 100,
     .stall = 2,
     .delay_ms = 20},
    {.lose_request = 150,
     .lose_reply = 150,
     .duplicate = 150,
     .refuse = 100,
     .slow = 400,
     .not_sent = 50,
     .cut_call = 300,
     .cut_list = 150,
     .cut_watch = 20,
     .lag = 150,
     .slow_list = 500,
     .stall = 10,
     .delay_ms = 100},
    /* No losses, but maximum delays: lists and calls overlap. */
    {.slow = 600,
     .slow_list = 950,
     .lag = 50,
     .stall = 20,
     .last_gasp = 20,
     .cut_watch = 10,
     .delay_ms = 50},
    /* Processes freeze between a decision and its Binding. */
    {.lose_reply = 50, .slow = 100, .slow_list = 200, .stall = 150, .delay_ms = 10},
};

static void change_weather(struct world *w, void *arg)
{
    (void)arg;
    if (w->quiet)
        return;
    w->weather = weathers[rng_below(&w->rng, ARRAY_LEN(weathers))];
    at(w, w->now_ms + between(w, 1000, 20000), change_weather, NULL, NULL);
}

static void start_chaos(struct world *w, void *arg);

/* At rest all states must agree. */
static void end_quiet(struct world *w, void *arg)
{
    (void)arg;
    oracle_settled(w);
    for (int i = 0; i < w->n_replicas; i++)
        agents_settled(w, w->replicas[i]);
    w->stats.quiets++;
    start_chaos(w, NULL);
}

static bool everybody_watches(const struct world *w)
{
    for (int i = 0; i < w->n_replicas; i++)
        if (!replica_watches_all(w, w->replicas[i]))
            return false;
    return true;
}

/* A reservation whose bind never came ends after its time limit. */
static bool nobody_reserves(const struct world *w)
{
    for (int i = 0; i < w->n_replicas; i++)
        if (ledger_totals(core_ledger(replica_core(w->replicas[i]))).reservations)
            return false;
    return true;
}

static void poll_quiet(struct world *w, void *arg)
{
    int64_t *since = arg;
    if (!everybody_watches(w))
        scheduler_forget_backoff(w); /* it may be in a long backoff */
    if (!nobody_reserves(w))
        scheduler_forget_backoff(w);
    if (scheduler_idle(w) && evictions_idle(w) && w->now_ms - *since > 12000) {
        free(since);
        end_quiet(w, NULL);
        return;
    }
    if (w->now_ms - *since > 3600 * 1000) {
        violated(w, "no rest after an hour without failures");
        free(since);
        return;
    }
    at(w, w->now_ms + 500, poll_quiet, since, free);
}

static void start_quiet(struct world *w, void *arg)
{
    (void)arg;
    trace(w, "failures end");
    w->quiet = true;
    w->quiet_since_ms = w->now_ms;
    w->weather = weathers[0];
    memset(w->apart_until, 0, sizeof w->apart_until);
    for (int i = 0; i < w->n_replicas; i++)
        if (!replica_alive(w->replicas[i]))
            replica_boot(w, w->replicas[i]);
    scheduler_forget_backoff(w);
    int64_t *since = xmalloc(sizeof *since);
    *since = w->now_ms;
    at(w, w->now_ms + 500, poll_quiet, since, free);
}

static void start_chaos(struct world *w, void *arg)
{
    (void)arg;
    trace(w, "failures begin");
    w->quiet = false;
    change_weather(w, NULL);
    users_start(w);
    at(w, w->now_ms + between(w, 3000, 40000), start_quiet, NULL, NULL);
}

static void world_free(struct world *w)
{
    for (size_t i = 0; i < w->n_events; i++)
        if (w->heap[i].drop)
            w->heap[i].drop(w->heap[i].arg);
    for (int i = 0; i < w->n_replicas; i++)
        replica_free(w->replicas[i]);
    scheduler_free(w->scheduler);
    permit_free(w->permit);
    kubelets_free(w->kubelets);
    evictions_free(w->evictions);
    oracle_free(w->oracle);
    api_on_change(w->api, NULL, NULL);
    api_free(w->api);
    for (size_t i = 0; i < TRACE_LINES; i++)
        free(w->trace[i]);
    free(w->heap);
}

static void add(struct stats *sum, const struct stats *s)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)s;
    for (size_t i = 0; i < sizeof *s / sizeof *to; i++)
        to[i] += from[i];
}

bool world_run(uint64_t seed, uint64_t steps, int replicas, bool verbose,
               struct stats *stats)
{
    struct world w = {.seed = seed,
                      .now_ms = 1000000,
                      .max_steps = steps,
                      .n_replicas = replicas,
                      .outsiders = seed % 4 >= 2,
                      .tenants = seed / 4 % 4 != 0,
                      .policy = seed / 4 % 4 == 1,
                      .preempts = seed % 3 == 0 && seed / 2 % 5 != 4,
                      .decides = seed / 2 % 5 >= 3,
                      .gangs = seed / 2 % 5 == 4,
                      .verbose = verbose};
    struct api_config config = {.seed = seed};
    rng_init(&w.rng, seed);
    rng_init(&w.plain_rng, seed);
    w.api = api_new(&config);
    w.oracle = oracle_new(&w);
    w.scheduler = scheduler_new();
    w.permit = permit_new();
    w.kubelets = kubelets_new();
    w.evictions = evictions_new();
    for (int i = 0; i < replicas; i++)
        w.replicas[i] = replica_new(&w, i);
    api_on_change(w.api, on_change, &w);
    tick_api(&w, NULL);
    for (int i = 0; i < replicas; i++)
        replica_boot(&w, w.replicas[i]);
    agents_start(&w);
    scheduler_start(&w);
    start_chaos(&w, NULL);
    while (w.steps < steps && !w.failed) {
        struct event e = take(&w);
        w.now_ms = e.at;
        w.steps++;
        e.fn(&w, e.arg);
    }
    add(stats, &w.stats);
    bool ok = !w.failed;
    world_free(&w);
    return ok;
}
