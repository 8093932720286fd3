/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "cli/explain_priv.h"

/* Cards that the extender has reserved for pods from filter to bind. The API objects do not
 * show them: only the leader's view does. */

static struct span text_at(const json_t *o, const char *key)
{
    return span_of(json_string_value(json_object_get(o, key)));
}

static const json_t *reservations_of(const struct explain_page *p,
                                     const struct ledger_node *node, int32_t card)
{
    const json_t *item;
    size_t i, k;
    json_array_foreach(json_object_get(p->facts->view, "nodes"), i, item)
    {
        const json_t *dev;
        if (!span_eq(text_at(item, "name"), node->name))
            continue;
        json_array_foreach(json_object_get(item, "devs"), k, dev)
        {
            if (json_integer_value(json_object_get(dev, "id")) == card)
                return json_object_get(dev, "reservations");
        }
    }
    return NULL;
}

void explain_reserved(struct explain_page *p, struct buf *out,
                      const struct ledger_node *node, const struct card *card)
{
    const json_t *item;
    size_t i;
    const char *before = "; reserved: ";
    json_array_foreach(reservations_of(p, node, card->index), i, item)
    {
        struct span ns = text_at(item, "namespace"), name = text_at(item, "name");
        buf_adds(out, before);
        if (name.n)
            buf_printf(out, "%.*s/%.*s ", SPAN_ARG(ns), SPAN_ARG(name));
        else
            buf_adds(out, "a pod of another namespace ");
        explain_amount(out, json_integer_value(json_object_get(item, "mib")), p->unit);
        before = ", ";
    }
}

static bool is_reserved_for(const json_t *reservations, struct span uid)
{
    const json_t *item;
    size_t i;
    json_array_foreach(reservations, i, item)
    {
        if (span_eq(text_at(item, "uid"), uid))
            return true;
    }
    return false;
}

void explain_own_reservation(struct explain_page *p, const struct ledger_node **nodes,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *before = "Reserved for this pod until its bind: ";
        for (uint32_t k = 0; k < nodes[i]->n_cards; k++) {
            int32_t index = nodes[i]->cards[k].index;
            if (!is_reserved_for(reservations_of(p, nodes[i], index), p->pod->uid))
                continue;
            buf_printf(p->out, "%sGPU%" PRId32, before, index);
            before = ", ";
        }
        if (*before != ',')
            continue;
        buf_adds(p->out, " of node ");
        explain_plain(p, nodes[i]->name);
        buf_adds(p->out, ".\n");
    }
}
