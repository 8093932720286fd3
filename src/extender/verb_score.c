/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/mem.h"

/*
 * The scores of candidates, for prioritize and for a filter that answers with the best
 * nodes. Policies need the values of all nodes before they rate the first, so the nodes are
 * visited twice, VERBS_LOCK_NODES under one lock. Pointers from the first visit are used
 * again if the ledger is unchanged.
 *
 * The node of the pod's own reservation, if it has one, is replaced by a copy without it: a
 * pod that is judged again must not count against itself.
 */

struct scoring {
    struct verbs *v;
    struct verbs_work *w;
    const uint32_t *at; /* indexes of candidates; NULL: all, in order */
    size_t n;
    const struct score_pod *pod;
    struct score_run *run;
    uint64_t generation;                /* of the ledger, at the first lookup */
    bool changed;                       /* since then: nodes must be looked up again */
    const struct ledger_node *reserved; /* the node of the reservation, or NULL */
    struct ledger_node copy;
    struct card *cards; /* of the copy; borrowed */
};

static void copy_reserved(struct scoring *s, const struct ledger *l)
{
    const struct ledger_reservation *own =
        ledger_reservations(l) ? ledger_reservation_find(l, s->w->args.pod.meta.uid)
                               : NULL;
    s->reserved = own ? own->node : NULL;
    if (own)
        ledger_node_without(own, s->cards, &s->copy);
}

/* Looks up the candidates from the i-th up to the end-th. */
static void find_nodes(struct scoring *s, const struct ledger *ledger, size_t i,
                       size_t end)
{
    const struct verb_candidate *all = s->w->args.nodes;
    while (i < end) {
        const struct ledger_node *nodes[MAP_BATCH];
        struct span names[MAP_BATCH];
        size_t n = end - i < MAP_BATCH ? end - i : MAP_BATCH;
        for (size_t k = 0; k < n; k++)
            names[k] = all[s->at ? s->at[i + k] : i + k].name;
        ledger_nodes_find(ledger, names, n, nodes);
        for (size_t k = 0; k < n; k++) {
            const char *line = (const char *)nodes[k];
            if (!line)
                continue;
            __builtin_prefetch(line + LEDGER_LINE); /* score_rate reads it next */
            __builtin_prefetch(line + offsetof(struct ledger_node, cpu_milli));
        }
        for (size_t k = 0; k < n; k++)
            s->w->nodes[i + k] = (struct score_node){
                .node = nodes[k] && nodes[k] == s->reserved ? &s->copy : nodes[k]};
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

static void visit(struct scoring *s, const struct ledger *l, bool first, size_t i,
                  size_t end)
{
    struct verbs_work *w = s->w;
    if (first && i == 0) {
        s->generation = ledger_generation(l);
        score_begin(s->run, s->v->config.policy, s->pod, ledger_mix(l), &w->scratch,
                    s->n);
    }
    s->changed |= ledger_generation(l) != s->generation;
    if ((first && i == 0) || s->changed)
        copy_reserved(s, l);
    if (first || s->changed)
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
    size_t i = 0;
    do {
        size_t end = s->n - i < VERBS_LOCK_NODES ? s->n : i + VERBS_LOCK_NODES;
        visit(s, core_ledger(store_read(store)), first, i, end);
        store_read_end(store);
        i = end;
    } while (i < s->n);
}

void verbs_score(struct verbs *v, struct verbs_work *w, const uint32_t *at, size_t n,
                 const struct score_pod *pod, struct score_run *run)
{
    struct card cards[SCV_MAX_CARDS];
    struct scoring s = {
        .v = v, .w = w, .at = at, .n = n, .pod = pod, .run = run, .cards = cards};
    MEM_GROW(w->nodes, w->nodes_cap, n);
    visit_all(&s, true);
    visit_all(&s, false);
}
