/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/unit.h"

#include "domain/quantity.h"

enum {
    GIB = 1024,
    CARD_MAX = 1024, /* units of a card; no GPU has more than 1 TiB */
};

/* Sum over the node's cards, each rounded down to whole units. */
static int64_t units_of(const struct ledger_node *node, int64_t mib)
{
    int64_t units = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        units += node->cards[i].total_mib / mib;
    return units;
}

/* Can the node's capacity be compared with the cards of its Scv? */
static bool is_comparable(const struct ledger_node *node,
                          const struct cluster_state_node *object)
{
    return object && object->capacity.mem > 0 && node->source == SOURCE_SCV &&
           node->state != NODE_SCV_DAMAGED && units_of(node, 1) > 0 &&
           (object->capacity.cards <= 0 || object->capacity.cards == node->n_cards);
}

/* How many nodes' capacities match a unit, and how many do not. */
struct votes {
    size_t yes, no;
};

static struct votes count(const struct cluster_state *cs, int64_t mib)
{
    const struct ledger *l = cluster_state_ledger(cs);
    struct votes votes = {0};
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        const struct cluster_state_node *object =
            node ? cluster_state_node(cs, node->name) : NULL;
        if (!node || !is_comparable(node, object))
            continue;
        bool yes = object->capacity.mem == units_of(node, mib);
        votes.yes += yes;
        votes.no += !yes;
    }
    return votes;
}

/* A fraction of a GiB, such as 256MiB, that matches all nodes. Multiples are not tried: a
 * capacity that is too small may also be one where a card is missing. */
static bool find_fraction(const struct cluster_state *cs, int64_t *mib)
{
    for (int64_t unit = GIB / 2; unit > 1; unit /= 2) {
        struct votes votes = count(cs, unit);
        if (!votes.yes || votes.no)
            continue;
        *mib = unit;
        return true;
    }
    return false;
}

/* Without an Scv, only the capacity itself can rule GiB out. */
static bool is_beyond_gib(const struct cluster_state *cs)
{
    const struct ledger *l = cluster_state_ledger(cs);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        const struct cluster_state_node *object =
            node ? cluster_state_node(cs, node->name) : NULL;
        if (object && node->source == SOURCE_CAPACITY && object->capacity.cards > 0 &&
            object->capacity.mem / object->capacity.cards > CARD_MAX)
            return true;
    }
    return false;
}

bool unit_of_cluster(const struct cluster_state *cs, int64_t *mib)
{
    struct votes gib = count(cs, GIB), one = count(cs, 1);
    *mib = GIB;
    if (gib.yes && !one.yes) /* --check reports the nodes that do not match */
        return true;
    if (one.yes) {
        *mib = 1;
        return !gib.yes;
    }
    if (gib.no)
        return find_fraction(cs, mib);
    if (!is_beyond_gib(cs))
        return true;
    *mib = 1;
    return false;
}

bool unit_of_view(const json_t *view, int64_t *mib)
{
    struct span text = span_of(json_string_value(json_object_get(view, "unit")));
    return text.n && quantity_read_unit(text, mib, NULL) == 0;
}
