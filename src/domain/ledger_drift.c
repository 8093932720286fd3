/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

/*
 * Where ledger, annotations, Node and Scv do not agree, by number; `kubectl inspect
 * gpushare --check` says the same in words.
 */

static void count_cards(const struct ledger_node *node, int64_t counts[DRIFTS])
{
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        counts[DRIFT_OVERCOMMITTED] += card->over;
        counts[DRIFT_OUTSIDE] += card->withheld_mib > 0;
    }
}

/* kube-scheduler goes by the capacity. */
static void count_capacity(const struct ledger *l, const struct ledger_node *node,
                           int64_t counts[DRIFTS])
{
    const struct ledger_node_facts *f = node->facts;
    int64_t units = 0;
    if (!f->has[LEDGER_NODE] || node->source != SOURCE_SCV || f->scv_damaged)
        return;
    for (uint32_t i = 0; i < node->n_cards; i++)
        units += node->cards[i].total_mib / l->settings.unit_mib;
    counts[DRIFT_CAPACITY] += f->capacity.mem > 0 && f->capacity.mem != units;
    counts[DRIFT_CAPACITY] += f->capacity.cards > 0 && f->capacity.cards != node->n_cards;
}

/* Is the card promised to the pod, or one that was and is not there? */
static bool is_promised(const struct ledger_node *node, const struct ledger_pod *pod,
                        uint64_t card)
{
    for (uint32_t i = 0; i < pod->n_shares; i++)
        if (!pod->shares[i].on && scv_card_hash(pod->shares[i].uuid) == card)
            return true;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (scv_card_hash(node->cards[i].uuid) == card &&
            ledger_pod_mib(pod, &node->cards[i]) >= 0)
            return true;
    return false;
}

static int64_t wrong_cards(const struct ledger_node *node, const struct ledger_pod *pod)
{
    const struct ledger_node_facts *f = node->facts;
    uint64_t hash = f->n_given ? scv_pod_hash(pod->ns, pod->name) : 0;
    int64_t n = 0;
    for (size_t i = 0; i < f->n_given && pod->n_shares; i++)
        n += f->given[i].pod == hash && !is_promised(node, pod, f->given[i].card);
    return n;
}

void ledger_node_drift(const struct ledger *l, const struct ledger_node *node,
                       int64_t counts[DRIFTS])
{
    count_cards(node, counts);
    count_capacity(l, node, counts);
    counts[DRIFT_LISTED] += node->listed_nowhere >= 0;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        if (pod->request.kind == REQUEST_DEVICES)
            continue;
        counts[DRIFT_CARDLESS] += !pod->n_shares && node->n_cards != 1;
        for (uint32_t i = 0; i < pod->n_shares; i++)
            counts[DRIFT_UNPLACED] += !pod->shares[i].on;
        counts[DRIFT_WRONG_CARD] += wrong_cards(node, pod);
    }
}
