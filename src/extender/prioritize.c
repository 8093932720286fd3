/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "placement/placement.h"

unsigned verb_prioritize(struct verbs *v, struct span body, struct buf *reply)
{
    struct work *w = work_take(v);
    const struct core *core;
    unsigned status = verb_begin(v, w, body, reply, &core);
    if (status == 200) {
        const struct extender_args *args = &w->args;
        buf_addc(reply, '[');
        for (size_t i = 0; i < args->n; i++) {
            const struct candidate *c = &args->nodes[i];
            const struct ledger_node *node = ledger_node_find(core_ledger(core), c->name);
            bool asks = args->request.kind != REQUEST_NONE;
            buf_adds(reply, i ? ",{\"Host\":" : "{\"Host\":");
            if (args->full)
                buf_add_json(reply, c->name);
            else
                buf_add_span(reply, c->raw);
            buf_adds(reply, ",\"Score\":");
            buf_add_i64(reply, node && asks ? placement_score(node, &args->request) : 0);
            buf_addc(reply, '}');
        }
        buf_addc(reply, ']');
        store_read_end(verbs_store(v));
    }
    work_give(v, w);
    return status;
}
