/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/mem.h"

/*
 * The scores of candidates, for prioritize and for a filter that answers with the best
 * nodes. Policies need the values of all nodes before they rate the first, so the nodes are
 * visited twice, VERBS_LOCK_NODES under one lock. Pointers from the first visit are used
 * again if the ledger is unchanged.
 */

struct scoring {
    struct verbs *v;
    struct verbs_work *w;
    const struct verbs_scored *these;
    const struct score_pod *pod;
    struct score_run *run;
    bool found;          /* by the caller, not yet by a visit */
    uint64_t generation; /* of the ledger, when they were found */
    bool changed;        /* since then: nodes must be looked up again */
};

/* Looks up the candidates from the i-th up to the end-th. */
static void find_nodes(struct scoring *s, const struct ledger *ledger, size_t i,
                       size_t end)
{
    const struct verb_candidate *all = s->w->args.nodes;
    const uint32_t *at = s->these->at;
    while (i < end) {
        const struct ledger_node *nodes[MAP_BATCH];
        struct span names[MAP_BATCH];
        size_t n = end - i < MAP_BATCH ? end - i : MAP_BATCH;
        for (size_t k = 0; k < n; k++)
            names[k] = all[at ? at[i + k] : i + k].name;
        ledger_nodes_find(ledger, names, n, nodes);
        for (size_t k = 0; k < n; k++) {
            const char *line = (const char *)nodes[k];
            if (!line)
                continue;
            __builtin_prefetch(line + LEDGER_LINE); /* score_rate reads it next */
            __builtin_prefetch(line + offsetof(struct ledger_node, cpu_milli));
        }
        for (size_t k = 0; k < n; k++)
            s->w->nodes[i + k] = (struct score_node){.node = nodes[k]};
        i += n;
    }
}

/* Reads the nodes' CPU. It is far from what the first visit needs. */
static void read_cpu(struct score_node *nodes, size_t n)
{
    enum { AHEAD = 8 };
    for (size_t i = 0; i < n; i++) {
        const struct ledger_node *next = i + AHEAD < n ? nodes[i + AHEAD].node : NULL;
        __builtin_prefetch(next ? &next->cpu_milli : NULL);
        nodes[i] = score_node_of(nodes[i].node);
    }
}

static void begin(struct scoring *s, const struct ledger *l)
{
    score_begin(s->run, s->v->config.policy, s->pod, ledger_mix(l), &s->w->scratch,
                s->these->n);
    s->found &= ledger_generation(l) == s->generation;
    s->generation = ledger_generation(l);
}

static void visit(struct scoring *s, const struct ledger *l, bool first, size_t i,
                  size_t end)
{
    struct verbs_work *w = s->w;
    if (first && i == 0)
        begin(s, l);
    s->changed |= ledger_generation(l) != s->generation;
    if (s->changed || (first && !s->found))
        find_nodes(s, l, i, end);
    if (first) {
        score_survey(s->run, w->nodes + i, end - i);
        return;
    }
    read_cpu(w->nodes + i, end - i);
    score_rate(s->run, w->nodes + i, i, end - i);
}

static void visit_all(struct scoring *s, bool first)
{
    struct store *store = s->v->config.store;
    size_t i = 0, n = s->these->n;
    do {
        size_t end = n - i < VERBS_LOCK_NODES ? n : i + VERBS_LOCK_NODES;
        visit(s, core_ledger(store_read(store)), first, i, end);
        store_read_end(store);
        i = end;
    } while (i < n);
}

void verbs_score(struct verbs *v, struct verbs_work *w, const struct verbs_scored *these,
                 const struct score_pod *pod, struct score_run *run)
{
    struct scoring s = {.v = v,
                        .w = w,
                        .these = these,
                        .pod = pod,
                        .run = run,
                        .found = these->found,
                        .generation = these->generation};
    MEM_GROW(w->nodes, w->nodes_cap, these->n);
    visit_all(&s, true);
    visit_all(&s, false);
}
