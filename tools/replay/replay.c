/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/replay.h"

#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "replay/cluster.h"

enum {
    WIDE_CARDS = 8, /* a pod of so many cards or more counts as wide */
    CHURN_FROM_LOAD = 100,
    CHURN_TO_LOAD = 500, /* load in percent */
};

void replay_stream_start(struct replay_stream *s, const struct trace *trace,
                         struct rng *rng)
{
    size_t n = trace->n_pods;
    *s = (struct replay_stream){.trace = trace, .rng = rng};
    s->order = xcalloc(n, sizeof *s->order);
    for (size_t i = 0; i < n; i++) {
        size_t k = rng_below(rng, i + 1);
        s->order[i] = s->order[k];
        s->order[k] = (uint32_t)i;
    }
}

const struct trace_pod *replay_stream_next(struct replay_stream *s)
{
    size_t n = s->trace->n_pods;
    size_t i = s->next < n ? s->order[s->next++] : rng_below(s->rng, n);
    return &s->trace->pods[i];
}

static int64_t demand(const struct trace_pod *pod)
{
    return pod->gpu_milli * pod->cards;
}

void replay_sample(struct replay_at_load *at, double load, double allocated)
{
    int64_t rounded = (int64_t)(load + 0.5);
    if (at->beyond || rounded < at->load)
        return;
    at->beyond = rounded > at->load;
    if (at->beyond && at->n)
        return;
    at->sum += allocated;
    at->n++;
}

static int64_t mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Pods that were rejected. */
struct rejects {
    const struct trace_pod **pods;
    size_t n, cap;
};

static void defragment(struct cluster *c, const struct rejects *rejects, size_t most,
                       struct replay_result *sums)
{
    for (size_t i = 0; i < rejects->n; i++) {
        const struct trace_pod *pod = rejects->pods[i];
        size_t moves;
        sums->rejected++;
        sums->rejected_cards += (double)demand(pod) / TRACE_CARD;
        int64_t start = mono_ns();
        bool done = cluster_defragment(c, pod, most, &moves);
        double ms = (double)(mono_ns() - start) / 1e6;
        sums->plan_ms += ms;
        sums->longest_plan_ms = ms > sums->longest_plan_ms ? ms : sums->longest_plan_ms;
        if (!done)
            continue;
        sums->won++;
        sums->won_wide += pod->cards >= WIDE_CARDS;
        sums->won_cards += (double)demand(pod) / TRACE_CARD;
        sums->moves += (double)moves;
    }
}

/* The first run: pods arrive and stay until the load exceeds 100 percent. */
static void fill(const struct trace *trace, const struct replay_settings *settings,
                 uint64_t seed, struct replay_result *sums)
{
    struct rng rng;
    struct replay_stream stream;
    struct replay_at_load at90 = {.load = 90}, at100 = {.load = 100};
    double capacity = (double)trace->capacity / 100, load = 0, first = -1;
    struct rejects rejects = {0};
    int64_t arrived = 0;
    rng_init(&rng, seed);
    replay_stream_start(&stream, trace, &rng);
    struct cluster *c = cluster_new(trace, settings->policy, settings->sees_cpu);
    int64_t start = mono_ns();
    while (!at100.beyond) {
        const struct trace_pod *pod = replay_stream_next(&stream);
        bool scheduled = cluster_arrive(c, pod, &rng);
        arrived += demand(pod);
        load = (double)arrived / capacity;
        if (!scheduled && first < 0)
            first = load;
        if (!scheduled && pod->cards >= WIDE_CARDS && load <= 100)
            sums->rejected_wide++;
        if (!scheduled && pod->cards && load <= 100) {
            MEM_GROW(rejects.pods, rejects.cap, rejects.n + 1);
            rejects.pods[rejects.n++] = pod;
        }
        replay_sample(&at90, load, (double)cluster_allocated(c) / capacity);
        replay_sample(&at100, load, (double)cluster_allocated(c) / capacity);
        sums->decisions++;
    }
    sums->seconds += (double)(mono_ns() - start) / 1e9;
    sums->alloc90 += at90.sum / (double)at90.n;
    sums->alloc100 += at100.sum / (double)at100.n;
    sums->rejecting += first >= 0;
    sums->first_reject += first >= 0 ? first : 0;
    if (settings->defrag)
        defragment(c, &rejects, (size_t)settings->defrag, sums);
    free(rejects.pods);
    cluster_free(c);
    free(stream.order);
}

/* The second run, with departures: see replay_run. */
static void churn(const struct trace *trace, const struct replay_settings *settings,
                  uint64_t seed, struct replay_result *sums)
{
    struct rng rng;
    struct replay_stream stream;
    int64_t arrived = 0, counted = 0, rejected = 0;
    rng_init(&rng, seed);
    replay_stream_start(&stream, trace, &rng);
    struct cluster *c = cluster_new(trace, settings->policy, settings->sees_cpu);
    while (arrived < trace->capacity / 100 * CHURN_TO_LOAD) {
        const struct trace_pod *pod = replay_stream_next(&stream);
        while (cluster_pods(c) && cluster_would_exceed(c, pod, settings->churn))
            cluster_leave(c, &rng);
        bool scheduled = cluster_arrive(c, pod, &rng);
        bool counts = arrived >= trace->capacity / 100 * CHURN_FROM_LOAD;
        arrived += demand(pod);
        counted += counts ? demand(pod) : 0;
        rejected += counts && !scheduled ? demand(pod) : 0;
    }
    sums->churn_rejected += counted ? 100.0 * (double)rejected / (double)counted : 0;
    cluster_free(c);
    free(stream.order);
}

void replay_run(const struct trace *trace, const struct replay_settings *settings,
                struct replay_result *result)
{
    struct replay_result r = {0};
    for (uint64_t i = 0; i < settings->seeds; i++) {
        fill(trace, settings, settings->first_seed + i, &r);
        if (settings->churn)
            churn(trace, settings, settings->first_seed + i, &r);
    }
    r.first_reject = r.rejecting ? r.first_reject / (double)r.rejecting : 0;
    r.decisions_per_s = r.seconds > 0 ? r.decisions / r.seconds : 0;
    r.plan_ms = r.rejected > 0 ? r.plan_ms / r.rejected : 0;
    double *const means[] = {
        &r.alloc90,        &r.alloc100, &r.rejected_wide, &r.churn_rejected, &r.rejected,
        &r.rejected_cards, &r.won,      &r.won_wide,      &r.won_cards,      &r.moves};
    for (size_t i = 0; i < ARRAY_LEN(means); i++)
        *means[i] /= (double)settings->seeds;
    *result = r;
}
