/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/mem.h"

/* Looks up all candidates in the ledger. */
static void find_nodes(struct verbs_work *w, const struct ledger *ledger)
{
    const struct verb_args *args = &w->args;
    MEM_GROW(w->nodes, w->nodes_cap, args->n);
    MEM_GROW(w->points, w->points_cap, args->n);
    for (size_t i = 0; i < args->n; i += MAP_BATCH) {
        const struct ledger_node *nodes[MAP_BATCH];
        size_t n = verbs_find_nodes(args, i, ledger, nodes);
        for (size_t k = 0; k < n; k++) {
            w->nodes[i + k] = (struct score_node){.node = nodes[k]};
            if (nodes[k]) /* score_nodes reads it next */
                __builtin_prefetch((const char *)nodes[k] + LEDGER_LINE);
        }
    }
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

unsigned verb_prioritize(struct verbs *v, struct span body, struct buf *reply)
{
    struct verbs_work *w = verbs_work_take(v);
    const struct core *core;
    unsigned status = verbs_begin(v, w, body, reply, &core);
    if (status == 200) {
        const struct ledger *ledger = core_ledger(core);
        struct score_pod pod = {.request = &w->args.request};
        find_nodes(w, ledger);
        score_nodes(v->config.policy, &pod, ledger_mix(ledger), w->nodes, w->args.n,
                    &w->scratch, w->points);
        store_read_end(v->config.store);
        buf_addc(reply, '[');
        for (size_t i = 0; i < w->args.n; i++)
            add_score(reply, w, i);
        buf_addc(reply, ']');
    }
    verbs_work_release(v, w);
    return status;
}
