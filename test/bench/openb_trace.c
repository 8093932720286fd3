/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/openb_trace.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "replay/cluster.h"
#include "replay/replay.h"

static int64_t demand(const struct trace_pod *pod)
{
    return pod->gpu_milli * pod->cards;
}

static double percent(const struct trace *trace, int64_t milli)
{
    return 100.0 * (double)milli / (double)trace->capacity;
}

void openb_arrive(struct openb_arrivals *a, const struct trace *trace, uint64_t seed)
{
    struct rng rng;
    struct replay_stream stream;
    struct replay_at_load end = {.load = 100};
    int64_t arrived = 0;
    *a = (struct openb_arrivals){.trace = trace};
    rng_init(&rng, seed);
    replay_stream_start(&stream, trace, &rng);
    while (!end.beyond) {
        MEM_GROW(a->pods, a->cap, a->n + 1);
        a->pods[a->n] = replay_stream_next(&stream);
        arrived += demand(a->pods[a->n++]);
        replay_sample(&end, percent(trace, arrived), 0);
    }
    free(stream.order);
}

struct openb_result openb_rate(const struct openb_arrivals *a, const bool *placed)
{
    struct openb_result r = {.first = 100};
    struct replay_at_load end = {.load = 100};
    int64_t arrived = 0, allocated = 0;
    for (size_t i = 0; i < a->n; i++) {
        arrived += demand(a->pods[i]);
        allocated += placed[i] ? demand(a->pods[i]) : 0;
        if (!placed[i] && r.rejected++ == 0)
            r.first = percent(a->trace, arrived);
        replay_sample(&end, percent(a->trace, arrived), percent(a->trace, allocated));
    }
    r.alloc100 = end.n ? end.sum / (double)end.n : 0;
    return r;
}

struct openb_result openb_replay(const struct openb_arrivals *a, bool cards_only,
                                 uint64_t seed)
{
    struct rng ties;
    cleanup_free bool *placed = xcalloc(a->n, sizeof *placed);
    struct cluster *c = cluster_new(a->trace, SCORE_FGD, true);
    rng_init(&ties, seed);
    for (size_t i = 0; i < a->n; i++)
        placed[i] = (cards_only && a->pods[i]->cards == 0) ||
                    cluster_arrive(c, a->pods[i], &ties);
    cluster_free(c);
    return openb_rate(a, placed);
}

/* -- cards -- */

struct openb_cards {
    const struct trace *trace;
    int64_t *free; /* TRACE_MAX_CARDS per node */
};

struct openb_cards *openb_cards_new(const struct trace *trace)
{
    struct openb_cards *c = xcalloc(1, sizeof *c);
    c->trace = trace;
    c->free = xcalloc(trace->n_nodes * TRACE_MAX_CARDS, sizeof *c->free);
    for (size_t i = 0; i < trace->n_nodes; i++)
        for (uint32_t k = 0; k < trace->nodes[i].cards; k++)
            c->free[i * TRACE_MAX_CARDS + k] = TRACE_CARD;
    return c;
}

void openb_cards_free(struct openb_cards *c)
{
    if (!c)
        return;
    free(c->free);
    free(c);
}

/* The card that fits with the least free memory; -1: none. */
static int fullest(const int64_t *left, uint32_t n, int64_t milli)
{
    int best = -1;
    for (uint32_t k = 0; k < n; k++)
        if (left[k] >= milli && (best < 0 || left[k] < left[best]))
            best = (int)k;
    return best;
}

bool openb_cards_take(struct openb_cards *c, struct span node,
                      const struct trace_pod *pod)
{
    size_t at = 0;
    while (at < c->trace->n_nodes && !span_eq(c->trace->nodes[at].name, node))
        at++;
    if (at == c->trace->n_nodes) /* a node without cards */
        return pod->cards == 0;
    int64_t *left = &c->free[at * TRACE_MAX_CARDS], then[TRACE_MAX_CARDS];
    uint32_t n = c->trace->nodes[at].cards;
    for (uint32_t k = 0; k < n; k++)
        then[k] = left[k];
    for (uint32_t k = 0; k < pod->cards; k++) {
        int card = fullest(then, n, pod->gpu_milli);
        if (card < 0)
            return false;
        then[card] -= pod->gpu_milli;
    }
    for (uint32_t k = 0; k < n; k++)
        left[k] = then[k];
    return true;
}
