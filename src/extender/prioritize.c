/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "placement/placement.h"

static void add_score(struct buf *reply, const struct extender_args *args,
                      const struct candidate *c, const struct ledger_node *node)
{
    bool asks = args->request.kind != REQUEST_NONE;
    buf_adds(reply, c == args->nodes ? "{\"Host\":" : ",{\"Host\":");
    if (args->full)
        buf_add_json(reply, c->name);
    else
        buf_add_span(reply, c->raw);
    buf_adds(reply, ",\"Score\":");
    buf_add_i64(reply, node && asks ? placement_score(node, &args->request) : 0);
    buf_addc(reply, '}');
}

unsigned verb_prioritize(struct verbs *v, struct span body, struct buf *reply)
{
    struct work *w = work_take(v);
    const struct core *core;
    unsigned status = verb_begin(v, w, body, reply, &core);
    if (status == 200) {
        const struct extender_args *args = &w->args;
        buf_addc(reply, '[');
        for (size_t i = 0; i < args->n; i += MAP_BATCH) {
            const struct ledger_node *nodes[MAP_BATCH];
            size_t n = candidates_find(args, i, core_ledger(core), nodes);
            for (size_t k = 0; k < n; k++)
                add_score(reply, args, &args->nodes[i + k], nodes[k]);
        }
        buf_addc(reply, ']');
        store_read_end(verbs_store(v));
    }
    work_give(v, w);
    return status;
}
