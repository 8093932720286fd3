/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/mem.h"

/*
 * prioritize. Policies need the values of all nodes before they rate the first, so the
 * nodes are visited twice, VERBS_LOCK_NODES under one lock. Pointers from the first visit
 * are used again if the ledger is unchanged.
 */

struct prioritize {
    struct verbs *v;
    struct verbs_work *w;
    const struct score_pod *pod;
    struct score_run run;
    uint64_t generation; /* of the ledger, at the first lookup */
    bool changed;        /* since then: nodes must be looked up again */
};

/* Looks up the candidates from the i-th up to the end-th. */
static void find_nodes(struct verbs_work *w, const struct ledger *ledger, size_t i,
                       size_t end)
{
    for (; i < end; i += MAP_BATCH) {
        const struct ledger_node *nodes[MAP_BATCH];
        size_t n = verbs_find_nodes(&w->args, i, end, ledger, nodes);
        for (size_t k = 0; k < n; k++) {
            w->nodes[i + k] = (struct score_node){.node = nodes[k]};
            if (!nodes[k])
                continue;
            /* score_rate reads it next */
            __builtin_prefetch((const char *)nodes[k] + LEDGER_LINE);
            __builtin_prefetch(&nodes[k]->cpu_milli);
        }
        for (size_t k = 0; k < n; k++)
            if (nodes[k]) {
                w->nodes[i + k].cpu_milli = nodes[k]->cpu_milli;
                w->nodes[i + k].cpu_free = nodes[k]->cpu_free;
            }
    }
}

static void visit(struct prioritize *p, const struct ledger *l, bool first, size_t i,
                  size_t end)
{
    struct verbs_work *w = p->w;
    if (first && i == 0) {
        p->generation = ledger_generation(l);
        score_begin(&p->run, p->v->config.policy, p->pod, ledger_mix(l), &w->scratch,
                    w->args.n);
    }
    p->changed |= ledger_generation(l) != p->generation;
    if (first || p->changed)
        find_nodes(w, l, i, end);
    if (first)
        score_survey(&p->run, w->nodes + i, end - i);
    else
        score_rate(&p->run, w->nodes + i, i, end - i);
}

static void visit_all(struct prioritize *p, bool first)
{
    struct store *store = p->v->config.store;
    size_t n = p->w->args.n, i = 0;
    do {
        size_t end = n - i < VERBS_LOCK_NODES ? n : i + VERBS_LOCK_NODES;
        visit(p, core_ledger(store_read(store)), first, i, end);
        store_read_end(store);
        i = end;
    } while (i < n);
}

static void add_score(struct buf *reply, const struct verbs_work *w, size_t i)
{
    const struct verb_candidate *c = &w->args.nodes[i];
    buf_adds(reply, i ? ",{\"Host\":" : "{\"Host\":");
    if (w->args.full)
        buf_add_json(reply, c->name);
    else
        buf_add_span(reply, c->raw);
    buf_adds(reply, ",\"Score\":");
    buf_add_i64(reply, w->points[i]);
    buf_addc(reply, '}');
}

static unsigned answer(struct verbs *v, struct verbs_work *w, struct buf *reply)
{
    const struct score_pod pod = {.request = &w->args.request,
                                  .cpu_milli = w->args.pod.requests.cpu_milli};
    struct prioritize p = {.v = v, .w = w, .pod = &pod};
    unsigned status = 200;
    MEM_GROW(w->nodes, w->nodes_cap, w->args.n);
    MEM_GROW(w->points, w->points_cap, w->args.n);
    visit_all(&p, true);
    visit_all(&p, false);
    score_end(&p.run, w->args.n, w->points);
    buf_addc(reply, '[');
    for (size_t i = 0; i < w->args.n && status == 200; i++) {
        add_score(reply, w, i);
        if (i % VERBS_LOCK_NODES == VERBS_LOCK_NODES - 1)
            status = verbs_charge(v, w, reply, 0);
    }
    if (status == 200)
        buf_addc(reply, ']');
    return status;
}

unsigned verb_prioritize(struct verbs *v, struct span body, struct buf *reply)
{
    struct verbs_work *w = verbs_work_take(v);
    unsigned status = verbs_begin(v, w, body, reply);
    if (status == 200)
        status = answer(v, w, reply);
    verbs_work_release(v, w);
    return status;
}
