/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/mem.h"

/* What the ledger knows of all the candidates. */
static void find_nodes(struct work *w, const struct ledger *ledger)
{
    const struct extender_args *args = &w->args;
    MEM_GROW(w->nodes, w->nodes_cap, args->n);
    MEM_GROW(w->points, w->points_cap, args->n);
    for (size_t i = 0; i < args->n; i += MAP_BATCH) {
        const struct ledger_node *nodes[MAP_BATCH];
        size_t n = candidates_find(args, i, ledger, nodes);
        for (size_t k = 0; k < n; k++) {
            w->nodes[i + k] = (struct score_node){.node = nodes[k]};
            if (nodes[k]) /* they are looked at soon */
                __builtin_prefetch((const char *)nodes[k] + LEDGER_LINE);
        }
    }
}

static void add_points(struct buf *reply, const struct work *w, size_t i)
{
    const struct candidate *c = &w->args.nodes[i];
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
    struct work *w = work_take(v);
    const struct core *core;
    unsigned status = verb_begin(v, w, body, reply, &core);
    if (status == 200) {
        const struct ledger *ledger = core_ledger(core);
        struct score_pod pod = {.request = &w->args.request};
        find_nodes(w, ledger);
        score_nodes(verbs_policy(v), &pod, ledger_mix(ledger), w->nodes, w->args.n,
                    &w->room, w->points);
        store_read_end(verbs_store(v));
        buf_addc(reply, '[');
        for (size_t i = 0; i < w->args.n; i++)
            add_points(reply, w, i);
        buf_addc(reply, ']');
    }
    work_give(v, w);
    return status;
}
