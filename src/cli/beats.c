/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/beats.h"

#include <inttypes.h>

#include "cli/table.h"
#include "placement/placement.h"

/* Should the extender be asked about it? It also knows of a Lease that was deleted. */
static bool is_doubtful(const struct world *w, const struct ledger_node *node)
{
    const struct world_beat *beat = world_beat(w, node->name);
    if (node->source != SOURCE_SCV)
        return false;
    return !beat || beat->doubt != DOUBT_NONE;
}

bool beats_doubtful(const struct world *w)
{
    const struct ledger *l = world_ledger(w);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (node && is_doubtful(w, node))
            return true;
    }
    return false;
}

static struct span text_at(const json_t *o, const char *key)
{
    return span_of(json_string_value(json_object_get(o, key)));
}

/* For how many seconds it has heard nothing; 0: it hears of it; -1: it does not say. */
static int64_t silence_in(const json_t *node)
{
    struct span reason = text_at(node, "reason"), number;
    int64_t seconds;
    if (!reason.n)
        return 0;
    if (!span_starts(reason, SPAN(PLACEMENT_SILENT)))
        return -1;
    reason.p += sizeof PLACEMENT_SILENT - 1;
    reason.n -= sizeof PLACEMENT_SILENT - 1;
    number = span_cut(&reason, ' ');
    return span_i64(number, &seconds) && seconds > 0 ? seconds : -1;
}

void beats_take(struct world *w, const json_t *view)
{
    const json_t *item;
    size_t i;
    if (!text_at(view, "unit").n || json_object_get(view, "error"))
        return;
    json_array_foreach(json_object_get(view, "nodes"), i, item)
    {
        struct span name = text_at(item, "name");
        const struct ledger_node *node = ledger_node_find(world_ledger(w), name);
        const struct world_beat *beat = world_beat(w, name);
        int64_t silence = silence_in(item);
        if (!node || !is_doubtful(w, node) || silence < 0)
            continue;
        if (silence && beat && beat->age_s > silence)
            silence = beat->age_s;
        world_told(w, node->name, silence);
    }
}

static void add_time(struct buf *out, const struct world_beat *beat)
{
    buf_adds(out, "its Lease is of ");
    table_plain(out, beat->renewed);
}

static void add_contest(struct buf *out, const struct world_beat *beat)
{
    if (beat->heard)
        buf_adds(out, ", and the extender hears of it: is the node's clock right?");
    else
        buf_adds(out, ", so that it does not tell whether scv-agent is alive");
}

void beats_note(struct buf *out, const struct world *w, const struct ledger_node *node)
{
    const struct world_beat *beat = world_beat(w, node->name);
    if (!beat || node->source != SOURCE_SCV)
        return;
    switch (beat->doubt) {
    case DOUBT_NONE:
        break;
    case DOUBT_OLD:
        if (!beat->heard && ledger_node_info(node).foreign)
            break; /* the reason says all of it */
        add_time(out, beat);
        buf_printf(out, ", %" PRId64 " s ago by the API server's clock", beat->age_s);
        if (beat->heard)
            add_contest(out, beat);
        break;
    case DOUBT_AHEAD:
        if (node->state == NODE_STALE)
            break;
        add_time(out, beat);
        buf_printf(out, ", %" PRId64 " s ahead of the API server's clock", -beat->age_s);
        add_contest(out, beat);
        break;
    case DOUBT_UNDATED:
        if (node->state != NODE_STALE && !beat->heard)
            buf_adds(out, "its Lease has no renewTime that can be read, so that it does "
                          "not tell whether scv-agent is alive");
        break;
    case DOUBT_NO_CLOCK:
        if (node->state != NODE_STALE && !beat->heard)
            buf_adds(out, "the API server does not say what time it is (Date), so that "
                          "its Lease does not tell whether scv-agent is alive");
        break;
    }
}
