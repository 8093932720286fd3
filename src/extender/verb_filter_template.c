/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "domain/template_node.h"
#include "extender/verb_filter_priv.h"

/*
 * Template Nodes (domain/template_node.h): candidates whose Node object is in the body and
 * which the ledger does not know. A call with no other candidates is a simulation of an
 * autoscaler. It leaves nothing behind: no reservation, no event, no count, no victim.
 *
 * A call that names a known node, too, is one of a scheduler: a Node that has just joined
 * may not be watched yet, and has the key if its node group has it.
 */

/* Does the ledger know one of the candidates? */
static bool knows_any(struct verbs *v, const struct verb_args *args)
{
    bool known = false;
    for (size_t i = 0; i < args->n && !known;) {
        const struct ledger *ledger = core_ledger(store_read(v->config.store));
        size_t end = args->n - i < VERBS_LOCK_NODES ? args->n : i + VERBS_LOCK_NODES;
        while (i < end && !known) {
            const struct ledger_node *nodes[MAP_BATCH];
            size_t found = verbs_find_nodes(args, i, end, ledger, nodes);
            for (size_t k = 0; k < found; k++)
                known |= nodes[k] != NULL;
            i += found;
        }
        store_read_end(v->config.store);
    }
    return known;
}

bool verb_filter_is_simulation(struct verbs *v, const struct verb_args *args)
{
    if (!args->full || knows_any(v, args))
        return false;
    for (size_t i = 0; i < args->n; i++)
        if (template_node_is(args->nodes[i].raw))
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

bool verb_filter_template(struct verb_filter *f, const struct verb_candidate *c)
{
    const struct request *r = &f->args->request;
    struct template_node_cards cards = {0};
    struct err err;
    struct ledger *alone =
        template_node_ledger(c->raw, ledger_settings(f->ledger), &cards, &err);
    if (!alone) {
        verb_filter_reject(f, f->failed, c, REASON_NODE, err.msg);
        return false;
    }
    const struct ledger_node *node = ledger_node_at(alone, 0); /* the only one */
    enum fit fit = select_fit(node, r);
    cleanup_buf struct buf why = {0};
    if (fit != FIT_YES) {
        reason_add_prepared(&why, &f->reasons, node, fit);
        add_source(&why, &cards);
        verb_filter_reject(f, fit == FIT_NEVER ? f->never : f->failed, c,
                           reason_class_of(node, r, fit), why.p);
    }
    ledger_free(alone);
    return fit == FIT_YES;
}
