/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/heartbeat.h"

#include <inttypes.h>

#include "cli/table.h"

/* The extender also knows of Leases that were deleted. */
static bool is_unclear(const struct cluster_state *cs, const struct ledger_node *node)
{
    const struct cluster_state_heartbeat *h = cluster_state_heartbeat(cs, node->name);
    if (node->source != SOURCE_SCV)
        return false;
    return !h || h->freshness != HEARTBEAT_FRESH;
}

bool heartbeat_is_unclear(const struct cluster_state *cs)
{
    const struct ledger *l = cluster_state_ledger(cs);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (node && is_unclear(cs, node))
            return true;
    }
    return false;
}

static struct span text_at(const json_t *o, const char *key)
{
    return span_of(json_string_value(json_object_get(o, key)));
}

/* Seconds without a renewal, 0 for a node in use, -1 if the node is rejected for another
 * reason, which says nothing of its heartbeat. */
static int64_t silence_in(const json_t *node)
{
    int64_t seconds = json_integer_value(json_object_get(node, "heartbeatAgeSeconds"));
    if (seconds > 0)
        return seconds;
    return text_at(node, "reason").n ? -1 : 0;
}

void heartbeat_apply_view(struct cluster_state *cs, const json_t *view)
{
    const json_t *item;
    size_t i;
    if (!text_at(view, "unit").n || json_object_get(view, "error"))
        return;
    json_array_foreach(json_object_get(view, "nodes"), i, item)
    {
        struct span name = text_at(item, "name");
        const struct ledger_node *node = ledger_node_find(cluster_state_ledger(cs), name);
        const struct cluster_state_heartbeat *h = cluster_state_heartbeat(cs, name);
        int64_t silence = silence_in(item);
        if (!node || !is_unclear(cs, node) || silence < 0)
            continue;
        if (silence && h && h->age_s > silence)
            silence = h->age_s;
        cluster_state_set_silence(cs, node->name, silence);
    }
}

static void add_time(struct buf *out, const struct cluster_state_heartbeat *h)
{
    buf_adds(out, "Lease last renewed at ");
    table_plain(out, h->renewed);
}

static void add_conclusion(struct buf *out, const struct cluster_state_heartbeat *h)
{
    buf_adds(out, h->confirmed
                      ? "; the extender receives renewals: check the node's clock"
                      : "; cannot tell whether scv-agent is running");
}

void heartbeat_note(struct buf *out, const struct cluster_state *cs,
                    const struct ledger_node *node)
{
    const struct cluster_state_heartbeat *h = cluster_state_heartbeat(cs, node->name);
    if (!h || node->source != SOURCE_SCV)
        return;
    bool open = node->state != NODE_STALE && !h->confirmed;
    switch (h->freshness) {
    case HEARTBEAT_FRESH:
        break;
    case HEARTBEAT_OLD:
        if (!h->confirmed && ledger_node_info(node).foreign)
            break; /* the node's reason names the Lease's owner and time */
        add_time(out, h);
        buf_printf(out, ", %" PRId64 " s ago by the API server's clock", h->age_s);
        if (h->confirmed)
            add_conclusion(out, h);
        break;
    case HEARTBEAT_AHEAD:
        if (node->state == NODE_STALE)
            break;
        add_time(out, h);
        buf_printf(out, ", %" PRId64 " s ahead of the API server's clock", -h->age_s);
        add_conclusion(out, h);
        break;
    case HEARTBEAT_UNDATED:
        if (open)
            buf_adds(out, "Lease has no valid renewTime; cannot tell whether scv-agent "
                          "is running");
        break;
    case HEARTBEAT_NO_CLOCK:
        if (open)
            buf_adds(out, "the API server sent no Date header; cannot tell from the "
                          "Lease whether scv-agent is running");
        break;
    }
}
