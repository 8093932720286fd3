/* SPDX-License-Identifier: Apache-2.0 */
#include "view/changes.h"

#include <stdlib.h>

#include "base/jwrite.h"
#include "base/mem.h"
#include "view/inspect.h"

enum { SLOTS_MAX = 1024 }; /* nodes scanned under one lock */

/* What was sent for a slot of the ledger. */
struct sent {
    char *name; /* NULL: no node */
    uint64_t generation;
};

struct view_changes {
    struct view_source source;
    struct sent *sent;
    size_t n_sent, sent_cap;
    uint32_t slot; /* position of the scan; 0: none is running */
    uint64_t generation,
        began; /* of the ledger at the last complete and the current scan */
};

struct view_changes *view_changes_new(const struct view_source *source)
{
    struct view_changes *c = xcalloc(1, sizeof *c);
    c->source = *source;
    c->generation = UINT64_MAX;
    return c;
}

void view_changes_free(struct view_changes *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_sent; i++)
        free(c->sent[i].name);
    free(c->sent);
    free(c);
}

static struct sent *sent_at(struct view_changes *c, uint32_t slot)
{
    MEM_GROW(c->sent, c->sent_cap, slot + 1);
    while (c->n_sent <= slot)
        c->sent[c->n_sent++] = (struct sent){0};
    return &c->sent[slot];
}

/* Not for a node that moved to another slot: it is sent from there. */
static void write_deleted(const struct ledger *l, struct sent *sent, struct buf *out)
{
    if (!ledger_node_find(l, span_of(sent->name))) {
        buf_adds(out, "{\"Node\":{\"name\":");
        buf_add_json(out, span_of(sent->name));
        buf_adds(out, "},\"Type\":\"DELETED\"}\n");
    }
    free(sent->name);
    *sent = (struct sent){0};
}

/* Writes the change of a slot, if any. */
static void write_slot(struct view_changes *c, const struct ledger *l, uint32_t slot,
                       struct buf *out)
{
    const struct ledger_node *node = ledger_node_at(l, slot);
    struct sent *sent = sent_at(c, slot);
    if (sent->name && (!node || !span_eq(span_of(sent->name), node->name)))
        write_deleted(l, sent, out);
    if (node && (!sent->name || sent->generation != node->generation)) {
        if (!sent->name)
            sent->name = xmemdup0(node->name.p, node->name.n);
        sent->generation = node->generation;
        buf_adds(out, "{\"Node\":");
        view_inspect_write_node(&(struct jwrite){.out = out}, l, node);
        buf_adds(out, ",\"Type\":\"SYNCED\"}\n");
    }
}

bool view_changes_write(struct view_changes *c, size_t chunk, struct buf *out)
{
    bool all = false;
    while (!all && out->n < chunk) {
        const struct ledger *l = core_ledger(c->source.read(c->source.ctx));
        uint32_t slots = ledger_node_slots(l), from = c->slot;
        if (c->slot == 0)
            c->began = ledger_generation(l);
        all = c->began == c->generation;
        for (; !all && c->slot < slots && c->slot < from + SLOTS_MAX && out->n < chunk;
             c->slot++)
            write_slot(c, l, c->slot, out);
        all |= c->slot >= slots;
        c->source.read_end(c->source.ctx);
    }
    if (!all)
        return false;
    c->generation = c->began;
    c->slot = 0;
    return true;
}
