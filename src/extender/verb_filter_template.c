/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/template_node.h"
#include "extender/verb_filter_priv.h"

/*
 * Template Nodes (domain/template_node.h): candidates whose Node object is in the body and
 * which the ledger does not know. A call with one is a simulation of an autoscaler. It
 * leaves nothing behind: no reservation, no event, no count, no victim.
 */

/* Fills `at` with the indexes of the candidates that the ledger does not know. */
static size_t find_unknown(struct verbs *v, const struct verb_args *args, uint32_t *at)
{
    size_t n = 0;
    for (size_t i = 0; i < args->n;) {
        const struct ledger *ledger = core_ledger(store_read(v->config.store));
        size_t end = args->n - i < VERBS_LOCK_NODES ? args->n : i + VERBS_LOCK_NODES;
        while (i < end) {
            const struct ledger_node *nodes[MAP_BATCH];
            size_t found = verbs_find_nodes(args, i, end, ledger, nodes);
            for (size_t k = 0; k < found; k++)
                if (!nodes[k])
                    at[n++] = (uint32_t)(i + k);
            i += found;
        }
        store_read_end(v->config.store);
    }
    return n;
}

bool verb_filter_is_simulation(struct verbs *v, struct verbs_work *w)
{
    const struct verb_args *args = &w->args;
    if (!args->full)
        return false;
    MEM_GROW(w->fitting, w->fitting_cap, args->n);
    size_t n = find_unknown(v, args, w->fitting);
    for (size_t i = 0; i < n; i++)
        if (template_node_is(args->nodes[w->fitting[i]].raw))
            return true;
    return false;
}

static void add_source(struct buf *out, const struct template_node_cards *cards)
{
    buf_adds(out, "; judged as a template Node by " KEY_CARDS "=");
    buf_add_i64(out, cards->n);
    buf_addc(out, 'x');
    buf_add_i64(out, cards->mib);
    buf_adds(out, "MiB");
}

void verb_filter_template(struct verb_filter *f, const struct verb_candidate *c)
{
    const struct request *r = &f->args->request;
    struct template_node_cards cards = {0};
    struct err err;
    struct ledger *alone =
        template_node_ledger(c->raw, ledger_settings(f->ledger), &cards, &err);
    if (!alone) {
        verb_filter_reject(f, f->failed, c, REASON_NODE, err.msg);
        return;
    }
    const struct ledger_node *node = ledger_node_at(alone, 0); /* the only one */
    enum fit fit = placement_fit(node, r);
    cleanup_buf struct buf why = {0};
    if (fit == FIT_YES) {
        verb_filter_pass(f, c);
    } else {
        reason_add_prepared(&why, &f->reasons, node, fit);
        add_source(&why, &cards);
        verb_filter_reject(f, fit == FIT_NEVER ? f->never : f->failed, c,
                           reason_class_of(node, r, fit), why.p);
    }
    ledger_free(alone);
}
