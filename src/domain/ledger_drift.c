/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

/*
 * Counts disagreements between ledger, annotations, Node and Scv; `kubectl inspect gpushare
 * --check` describes them.
 */

int64_t card_external_mib(const struct card *card)
{
    return card->state == CARD_HELD ? 0 : card->withheld_mib;
}

bool card_is_duplicate(const struct ledger_node *node, uint32_t i)
{
    return node->facts->has[LEDGER_SCV] && node->facts->duplicates >> i & 1;
}

bool ledger_mem_matches(const struct ledger_node *node, int64_t unit_mib, int64_t mem)
{
    int64_t healthy = 0, all = 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        int64_t units = node->cards[i].total_mib / unit_mib;
        healthy += node->cards[i].state == CARD_UNHEALTHY ? 0 : units;
        all += units;
    }
    return mem <= 0 || (mem >= healthy && mem <= all);
}

bool ledger_count_matches(const struct ledger_node *node, int64_t cards)
{
    int64_t unhealthy = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        unhealthy += node->cards[i].state == CARD_UNHEALTHY;
    return cards <= 0 || (cards >= node->n_cards - unhealthy && cards <= node->n_cards);
}

static void count_cards(const struct ledger_node *node, int64_t counts[DRIFTS])
{
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        counts[DRIFT_OVERCOMMITTED] += card->overcommitted;
        counts[DRIFT_OUTSIDE] += card_external_mib(card) > 0;
        counts[DRIFT_DUPLICATE] += card_is_duplicate(node, i);
    }
}

/* kube-scheduler trusts the capacity. */
static void count_capacity(const struct ledger *l, const struct ledger_node *node,
                           int64_t counts[DRIFTS])
{
    const struct ledger_node_facts *f = node->facts;
    if (!f->has[LEDGER_NODE] || node->source != SOURCE_SCV || f->scv_damaged)
        return;
    counts[DRIFT_CAPACITY] +=
        !ledger_mem_matches(node, l->settings.unit_mib, f->capacity.mem);
    counts[DRIFT_CAPACITY] += !ledger_count_matches(node, f->capacity.cards);
}

/* Is the card promised to the pod, even if the node no longer has it? */
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
    uint64_t hash = f->n_assignments ? scv_pod_hash(pod->ns, pod->name) : 0;
    int64_t n = 0;
    for (size_t i = 0; i < f->n_assignments && pod->n_shares; i++)
        n += f->assignments[i].pod == hash &&
             !is_promised(node, pod, f->assignments[i].card);
    return n;
}

void ledger_node_drift(const struct ledger *l, const struct ledger_node *node,
                       int64_t counts[DRIFTS])
{
    count_cards(node, counts);
    count_capacity(l, node, counts);
    counts[DRIFT_LISTED] += node->unknown_listed_card >= 0;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        if (pod->request.kind == REQUEST_DEVICES)
            continue;
        counts[DRIFT_CARDLESS] += !pod->n_shares && node->n_cards != 1;
        for (uint32_t i = 0; i < pod->n_shares; i++)
            counts[DRIFT_UNPLACED] += !pod->shares[i].on;
        counts[DRIFT_WRONG_CARD] += wrong_cards(node, pod);
    }
}
