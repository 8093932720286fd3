/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "cli/explain_priv.h"

/* Cards that the extender has reserved for pods from filter to bind. The API objects do not
 * show them: only the leader's view does. */

/* A node's name has no slash. */
static char *card_key(struct span node, int64_t card)
{
    return xasprintf("%.*s/%" PRId64, SPAN_ARG(node), card);
}

json_t *explain_reservations(const json_t *view)
{
    json_t *all = json_object();
    const json_t *node, *dev;
    size_t i, k;
    json_array_foreach(json_object_get(view, "nodes"), i, node)
    {
        json_array_foreach(json_object_get(node, "devs"), k, dev)
        {
            json_t *of_card = json_object_get(dev, "reservations");
            if (json_array_size(of_card) == 0)
                continue;
            cleanup_free char *key =
                card_key(explain_text_at(node, "name"),
                         json_integer_value(json_object_get(dev, "id")));
            json_object_set(all, key, of_card);
        }
    }
    return all;
}

void explain_reserved(struct explain_page *p, struct buf *out,
                      const struct ledger_node *node, const struct card *card)
{
    cleanup_free char *key = card_key(node->name, card->index);
    const json_t *item;
    size_t i;
    const char *before = "; reserved: ";
    json_array_foreach(json_object_get(p->reservations, key), i, item)
    {
        struct span ns = explain_text_at(item, "namespace");
        struct span name = explain_text_at(item, "name");
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
        if (span_eq(explain_text_at(item, "uid"), uid))
            return true;
    }
    return false;
}

void explain_own_reservation(struct explain_page *p)
{
    const json_t *node, *dev;
    size_t i, k;
    json_array_foreach(json_object_get(p->facts->view, "nodes"), i, node)
    {
        const char *before = "Reserved for this pod until its bind: ";
        json_array_foreach(json_object_get(node, "devs"), k, dev)
        {
            if (!is_reserved_for(json_object_get(dev, "reservations"), p->pod->uid))
                continue;
            buf_printf(p->out, "%sGPU%" PRId64, before,
                       (int64_t)json_integer_value(json_object_get(dev, "id")));
            before = ", ";
        }
        if (*before != ',')
            continue;
        buf_adds(p->out, " of node ");
        explain_plain(p, explain_text_at(node, "name"));
        buf_adds(p->out, ".\n");
    }
}
