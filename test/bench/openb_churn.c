/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/openb_churn.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "lib/lib.h"
#include "replay/replay.h"

enum {
    FROM_LOAD = 100,
    TO_LOAD = 500, /* load in percent, as in replay_run */
    PODS_MAX = 100000,
    DECIDE_MS = 60 * 1000,
    WATCHES_MS = 20, /* until kube-scheduler and extender know of a deletion */
};

struct running {
    const struct trace_pod *is;
    size_t i;
};

struct churn {
    const struct openb_setup *setup;
    const struct trace *trace;
    int64_t percent, allocated, cpu;
    struct rng rng;
    struct openb_log log;
    struct running *pods;
    size_t n, cap;
};

static int64_t demand(const struct trace_pod *pod)
{
    return pod->gpu_milli * pod->cards;
}

static bool would_exceed(const struct churn *c, const struct trace_pod *pod)
{
    return c->allocated + demand(pod) > c->trace->capacity / 100 * c->percent ||
           c->cpu + pod->cpu_milli > c->trace->cpu_milli / 100 * c->percent;
}

static void make_room(struct churn *c, const struct trace_pod *pod)
{
    size_t before = c->n;
    while (c->n && would_exceed(c, pod)) {
        struct running *r = &c->pods[rng_below(&c->rng, c->n)];
        openb_cluster_delete(r->i);
        c->allocated -= demand(r->is);
        c->cpu -= r->is->cpu_milli;
        *r = c->pods[--c->n];
    }
    if (c->n < before)
        usleep(WATCHES_MS * 1000);
}

/* Returns whether kube-scheduler bound it. */
static bool arrive(struct churn *c, size_t i, const struct trace_pod *pod)
{
    int64_t end = lib_now_ms() + DECIDE_MS;
    openb_cluster_pod(c->setup, i, pod);
    while (!c->log.seen[i]) {
        ck_assert_msg(lib_now_ms() < end, "kube-scheduler does not decide about p%05zu",
                      i);
        usleep(1000);
        openb_log_read(&c->log);
    }
    if (!(c->log.seen[i] & OPENB_BOUND)) {
        openb_cluster_settle(); /* a failed bind is repeated */
        openb_log_read(&c->log);
    }
    if (!(c->log.seen[i] & OPENB_BOUND)) {
        openb_cluster_delete(i);
        return false;
    }
    MEM_GROW(c->pods, c->cap, c->n + 1);
    c->pods[c->n++] = (struct running){pod, i};
    c->allocated += demand(pod);
    c->cpu += pod->cpu_milli;
    return true;
}

static double run(struct churn *c, size_t *n)
{
    struct replay_stream stream;
    int64_t arrived = 0, counted = 0, rejected = 0;
    replay_stream_start(&stream, c->trace, &c->rng);
    for (*n = 0; arrived < c->trace->capacity / 100 * TO_LOAD; ++*n) {
        const struct trace_pod *pod = replay_stream_next(&stream);
        bool counts = arrived >= c->trace->capacity / 100 * FROM_LOAD;
        ck_assert_uint_lt(*n, PODS_MAX);
        make_room(c, pod);
        bool bound = arrive(c, *n, pod);
        arrived += demand(pod);
        counted += counts ? demand(pod) : 0;
        rejected += counts && !bound ? demand(pod) : 0;
    }
    free(stream.order);
    return counted ? 100.0 * (double)rejected / (double)counted : 0;
}

struct openb_churned openb_churn(const struct openb_setup *setup,
                                 const struct trace *trace, int64_t percent,
                                 uint64_t seed)
{
    const struct replay_settings settings = {.policy = SCORE_FGD,
                                             .sees_cpu = true,
                                             .first_seed = seed,
                                             .seeds = 1,
                                             .churn = percent};
    struct replay_result replay;
    struct openb_churned result;
    struct churn c = {.setup = setup, .trace = trace, .percent = percent};
    cleanup_free uint8_t *seen = xcalloc(PODS_MAX, sizeof *seen);
    size_t n;
    replay_run(trace, &settings, &replay);
    rng_init(&c.rng, seed);
    openb_log_begin(&c.log, seen, PODS_MAX);
    openb_cluster_start(setup);
    result.rejected = run(&c, &n);
    openb_cluster_stop(setup);
    result.replay = replay.churn_rejected;
    result.rate = openb_log_rate(&c.log);
    openb_cluster_delete_all(n);
    openb_log_fini(&c.log);
    free(c.pods);
    return result;
}
