/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_preempt_priv.h"

#include <stdlib.h>

/* What layout preemption does for each pod that it remembers, for people. */

enum { NS_PER_MS = 1000 * 1000 };

int64_t core_preempt_after_ms(const struct core *core)
{
    return core->settings.preempt_after_ms;
}

static int64_t wall(const struct core_preempt_pod *e, int64_t mono_ms)
{
    return e->since_ns + (mono_ms - e->since_ms) * NS_PER_MS;
}

static struct core_preempt_status status_of(const struct core_preempt_pod *e)
{
    return (struct core_preempt_status){
        .uid = e->uid,
        .state = e->state,
        .found = e->result,
        .since_ns = e->since_ns,
        .search_ns = wall(e, e->due_ms),
        .until_ns = wall(e, e->until_ms),
        .candidates = e->n_nodes,
        .node = e->node,
        .victims = e->n_victims,
        .left = e->n_victims - e->next,
        .refused = e->refused,
        .by_budget = e->by_budget,
    };
}

static int by_uid(const void *a, const void *b)
{
    const struct core_preempt_status *x = a, *y = b;
    return span_cmp(x->uid, y->uid);
}

size_t core_preempt_list(const struct core *core, struct arena *a,
                         struct core_preempt_status **list)
{
    const struct core_preempt *p = &core->preempt;
    *list = arena_zalloc(a, p->n * sizeof **list);
    for (size_t i = 0; i < p->n; i++) {
        struct core_preempt_status *at = &(*list)[i];
        *at = status_of(p->pods[i]);
        at->uid = arena_copy(a, at->uid);
        at->node = arena_copy(a, at->node);
    }
    if (p->n)
        qsort(*list, p->n, sizeof **list, by_uid);
    return p->n;
}

uint64_t core_preempt_generation(const struct core *core)
{
    const struct core_preempt *p = &core->preempt;
    uint64_t hash = p->n;
    for (size_t i = 0; i < p->n; i++) {
        const struct core_preempt_pod *e = p->pods[i];
        /* Of the candidates only the count is shown; kube-scheduler rotates them. */
        const int64_t numbers[] = {
            e->state,    e->result,           e->since_ns,           e->due_ms,
            e->until_ms, (int64_t)e->n_nodes, (int64_t)e->n_victims, (int64_t)e->next,
            e->refused,  e->by_budget};
        hash = hash_bytes(hash, e->uid.p, e->uid.n);
        hash = hash_bytes(hash, e->node.p, e->node.n);
        hash = hash_bytes(hash, numbers, sizeof numbers);
    }
    return hash;
}
