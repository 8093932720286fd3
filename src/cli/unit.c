/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/unit.h"

#include "domain/quantity.h"

enum {
    GIB = 1024,
    CARD_MAX = 1024, /* units of a card: more than a TiB of memory is no GPU's */
};

/* What the cards of the node make, each in whole units. */
static int64_t units_of(const struct ledger_node *node, int64_t mib)
{
    int64_t units = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        units += node->cards[i].total_mib / mib;
    return units;
}

/* Does its Scv tell what its capacity is made of? */
static bool is_witness(const struct ledger_node *node, const struct world_node *is)
{
    return is && is->capacity.mem > 0 && node->source == SOURCE_SCV &&
           node->state != NODE_SCV_DAMAGED && units_of(node, 1) > 0 &&
           (is->capacity.cards <= 0 || is->capacity.cards == node->n_cards);
}

/* How many nodes speak for the unit, and is there one that speaks against it? */
struct votes {
    size_t yes, no;
};

static struct votes count(const struct world *w, int64_t mib)
{
    const struct ledger *l = world_ledger(w);
    struct votes votes = {0};
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        const struct world_node *is = node ? world_node(w, node->name) : NULL;
        if (!node || !is_witness(node, is))
            continue;
        bool yes = is->capacity.mem == units_of(node, mib);
        votes.yes += yes;
        votes.no += !yes;
    }
    return votes;
}

/* A fraction of a GiB that fits all nodes, as 256MiB. Not a multiple: a capacity that is
 * too small may as well lack a card. */
static bool find_fraction(const struct world *w, int64_t *mib)
{
    for (int64_t unit = GIB / 2; unit > 1; unit /= 2) {
        struct votes votes = count(w, unit);
        if (!votes.yes || votes.no)
            continue;
        *mib = unit;
        return true;
    }
    return false;
}

/* Where there is no Scv the capacity is all there is to see. */
static bool is_beyond_gib(const struct world *w)
{
    const struct ledger *l = world_ledger(w);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        const struct world_node *is = node ? world_node(w, node->name) : NULL;
        if (is && node->source == SOURCE_CAPACITY && is->capacity.cards > 0 &&
            is->capacity.mem / is->capacity.cards > CARD_MAX)
            return true;
    }
    return false;
}

bool unit_of_world(const struct world *w, int64_t *mib)
{
    struct votes gib = count(w, GIB), one = count(w, 1);
    *mib = GIB;
    if (gib.yes && !one.yes) /* one that does not fit is odd by itself: --check */
        return true;
    if (one.yes) {
        *mib = 1;
        return !gib.yes;
    }
    if (gib.no)
        return find_fraction(w, mib);
    if (!is_beyond_gib(w))
        return true;
    *mib = 1;
    return false;
}

bool unit_of_view(const json_t *view, int64_t *mib)
{
    struct span text = span_of(json_string_value(json_object_get(view, "unit")));
    return text.n && quantity_read_unit(text, mib, NULL) == 0;
}
